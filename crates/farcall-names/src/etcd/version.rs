//! Which versions of etcd keep two processes from owning one name.

/// Returns whether this version of etcd takes no leases back that were prolonged. Before 3.4.31 and 3.5.13 a
/// former leader does, if it hung (etcd issue 15247).
pub(super) fn keeps_leases(version: &str) -> bool {
    let mut parts = version.splitn(3, '.').map(|part| {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        part[..digits].parse::<u32>().ok()
    });
    let mut next = || parts.next().flatten();
    let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else { return false };
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        newer => newer > (3, 5),
    }
}

/// Says why an etcd of this version has no exclusive exports.
pub(super) fn refusal(endpoint: &str, version: &str) -> String {
    format!(
        "{endpoint} is etcd {version}, which may take back leases that were prolonged, so that a name could have two \
         owners (etcd issue 15247); exclusive exports need etcd 3.4.31, 3.5.13 or newer"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fake::server;
    use super::*;
    use crate::{Entry, Error, Etcd, Registry};

    #[test]
    fn versions_without_the_defect_are_known() {
        for good in ["3.4.31", "3.4.40", "3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "3.10.2", "4.0.0"] {
            assert!(keeps_leases(good), "{good}");
        }
        for bad in
            ["3.4.30", "3.4.23", "3.5.0", "3.5.12", "3.3.27", "2.9.9", "", "3", "3.5", "x.y.z", "3.4.x"]
        {
            assert!(!keeps_leases(bad), "{bad}");
        }
    }

    /// Returns how a registry refuses an exclusive export whose endpoints have these versions.
    fn refused(versions: &[&'static str]) -> Error {
        let stand_in = |version: &'static str| {
            server(move |path, _| match path {
                "maintenance/status" => (200, json!({ "version": version })),
                _ => (400, json!({ "error": "no further", "code": 3 })),
            })
        };
        let endpoints: Vec<String> = versions.iter().map(|version| stand_in(version).to_string()).collect();
        let etcd = Etcd::at(&format!("etcd://{}/test", endpoints.join(","))).unwrap();
        let address = "udp://127.0.0.1:7000".parse().unwrap();
        let entry = Entry::new("Store".parse().unwrap(), "main".parse().unwrap(), address, 7);
        etcd.publish_exclusively(&entry).unwrap_err()
    }

    #[test]
    fn one_old_member_refuses_exclusive_exports() {
        let old = refused(&["3.5.13", "3.4.23", "3.5.13"]);
        assert!(matches!(&old, Error::Unsafe { why, .. } if why.contains("is etcd 3.4.23")), "{old}");
        // With new ones the export goes on, and meets the stand-in's refusal of all else.
        let new = refused(&["3.4.31", "3.6.0"]);
        assert!(matches!(new, Error::Refused { code: 3, .. }), "{new}");
    }
}
