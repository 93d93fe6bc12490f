//! etcd's users and roles decide who may read and write names.

use farcall_names::{Error, Registry};

use crate::cluster::{cluster, entry, label, until};

#[test]
fn etcds_roles_decide_who_may_export_which_type() {
    let Some(cluster) = cluster(1) else { return };
    for command in [
        "user add root:secret",
        "role add root",
        "user grant-role root root",
        "user add clerk:word",
        "role add clerk",
        "role grant-permission clerk --prefix=true readwrite test/v1/Store/",
        "role grant-permission clerk --prefix=true read test/v1/",
        "user grant-role clerk clerk",
        "auth enable",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(!cluster.etcdctl(&words).is_empty(), "{command}");
    }
    let clerk = cluster.builder().user("clerk", "word").build();
    let registration = clerk.publish(&entry("a")).unwrap();
    assert_eq!(clerk.instances(&label("Store")).unwrap().len(), 1);
    let mut other = entry("a");
    other.type_name = label("Vault");
    let refused = clerk.publish(&other).unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");

    for stranger in [cluster.registry(), cluster.builder().user("clerk", "wrong").build()] {
        let refused = stranger.instances(&label("Store")).unwrap_err();
        assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
    }

    // A watch needs the user's session, too. A member that was started anew has forgotten all sessions.
    let before = clerk.version().unwrap();
    drop(registration);
    until("the change", || (clerk.version().unwrap() != before).then_some(()));
}

#[test]
fn a_session_that_etcd_has_forgotten_begins_anew() {
    let Some(mut cluster) = cluster(1) else { return };
    for command in ["user add root:secret", "role add root", "user grant-role root root", "auth enable"] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(!cluster.etcdctl(&words).is_empty(), "{command}");
    }
    let registry = cluster.builder().user("root", "secret").build();
    let registration = registry.publish(&entry("a")).unwrap();
    cluster.kill(0);
    cluster.restart(0);
    assert_eq!(registry.list().unwrap().entries.len(), 1);
    assert!(registration.withdraw().unwrap());
}
