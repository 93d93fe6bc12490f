//! What a function of a profile is part of.

/// A part of the time that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// System calls that send, receive, or wait for something to receive.
    Communication,
    /// Other system calls.
    Kernel,
    /// XDR: arguments, results, and the headers of messages.
    Xdr,
    /// From a procedure's name or number to the procedure: stubs, and the look-up at the server.
    Dispatch,
    /// All else: waiting, time-outs, locks, what is kept of calls.
    Rest,
}

impl Part {
    /// All parts, in the order of the tables.
    pub const ALL: [Part; 5] = [Part::Communication, Part::Kernel, Part::Xdr, Part::Dispatch, Part::Rest];

    /// Returns the part's name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Communication => "communication: send, receive, poll",
            Part::Kernel => "other system calls, interrupts",
            Part::Xdr => "XDR, with the messages' headers",
            Part::Dispatch => "dispatch: stubs, look-up",
            Part::Rest => "the rest: time-outs, locks, loop",
        }
    }
}

/// A function, or a module with all of its functions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    pub name: String,
    pub part: Part,
}

/// Returns the function for a system call.
pub fn of_system_call(name: &str) -> Function {
    let communicates = ["send", "recv", "poll", "ppoll", "select", "pselect", "epoll_", "read", "write"];
    let communicates = communicates.iter().any(|start| name.starts_with(start));
    let part = if communicates { Part::Communication } else { Part::Kernel };
    Function { name: name.to_owned(), part }
}

/// Returns the function for the functions at an address, the innermost first.
pub fn of_user_function(names: &[String]) -> Function {
    let Some(name) = names.first() else {
        return Function { name: "unknown".into(), part: Part::Rest };
    };
    match names.iter().find_map(|name| module(name)) {
        Some(module) => Function { part: of_module(&module), name: module },
        None => of_c(name),
    }
}

/// Leaves out what is inlined from the standard library: that is part of the function that uses it.
pub fn innermost(mut names: Vec<String>) -> Vec<String> {
    let library = |name: &String| {
        let name = name.trim_start_matches('<');
        ["core::", "std::", "alloc::", "hashbrown::"].iter().any(|start| name.starts_with(start))
    };
    if let Some(first) = names.iter().position(|name| !library(name)) {
        names.drain(..first);
    }
    names
}

/// Returns the module of a function of farcall: `farcall_onc::client::link`.
fn module(name: &str) -> Option<String> {
    // "<farcall_onc::client::bound::Bound as farcall_core::Channel>::call::{closure#0}"
    let start = name.trim_start_matches('<').trim_start_matches('&');
    if start.starts_with("farcall_bench_sunrpc::ways::cost") {
        return Some("generated stubs".into());
    }
    // "<i16 as farcall_xdr::encode::Encode>::encode"
    let farcall = start.starts_with("farcall_") && !start.starts_with("farcall_bench");
    let start = match start.split_once(" as farcall_xdr") {
        Some(_) if !farcall => "farcall_xdr",
        _ if farcall => start,
        _ => return None,
    };
    let path = start.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next()?;
    // Types and functions of a type begin with a capital letter, or stand after one.
    let modules = path.split("::").take_while(|part| part.starts_with(char::is_lowercase));
    let modules: Vec<&str> = modules.take(3).collect();
    Some(modules.join("::"))
}

fn of_module(module: &str) -> Part {
    let parts = [
        ("farcall_xdr", Part::Xdr),
        ("farcall_onc::wire", Part::Xdr),
        ("generated stubs", Part::Dispatch),
        ("farcall_onc::server::dispatcher", Part::Dispatch),
        ("farcall_onc::server::programs", Part::Dispatch),
        ("farcall_core::stub", Part::Dispatch),
        ("farcall_core::sys", Part::Communication),
    ];
    parts.iter().find(|(start, _)| module.starts_with(start)).map_or(Part::Rest, |(_, part)| *part)
}

/// Returns a function of C, or of this program.
fn of_c(name: &str) -> Function {
    // "<farcall_bench_sunrpc::custom::Datagrams as …>::call", "__libc_sendto", "poll@GLIBC_2.2.5"
    let name = name.split(" as ").next().unwrap_or(name).trim_start_matches('<');
    let name = name.trim_start_matches("farcall_bench_sunrpc::").trim_start_matches('_');
    let name = name.trim_start_matches("libc_").trim_start_matches("GI_").trim_start_matches('_');
    let name = name.split('@').next().unwrap_or(name);
    let is = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    let part = if of_system_call(name).part == Part::Communication {
        Part::Communication
    } else if name.contains("std::sys::net") || is(&["rustix::"]) {
        // The standard library around a system call.
        return Function { name: "std::net, rustix".into(), part: Part::Communication };
    } else if is(&["xdr", "seterr_reply", "mem"]) {
        Part::Xdr
    } else if is(&[
        "none",
        "two",
        "four",
        "cost_1",
        "dispatch",
        "marshal",
        "svc_getreq",
        "svc_find",
        "svc_run",
        "custom::dispatch",
        "custom::marshal",
    ]) {
        Part::Dispatch
    } else {
        Part::Rest
    };
    // The C library has a variant of each copy for each processor.
    let name = name.split("_avx").next().unwrap_or(name).split("_erms").next().unwrap_or(name);
    Function { name: name.to_owned(), part }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(names: &[&str]) -> Function {
        of_user_function(&innermost(names.iter().map(|&name| name.to_owned()).collect()))
    }

    #[test]
    fn what_is_inlined_from_the_library_belongs_to_its_user() {
        let function = user(&["core::ptr::read", "<farcall_xdr::encode::Encoder>::put", "main"]);
        assert_eq!((&*function.name, function.part), ("farcall_xdr::encode", Part::Xdr));
        let function = user(&["<i16 as farcall_xdr::encode::Encode>::encode", "<farcall_onc::A>::b"]);
        assert_eq!((&*function.name, function.part), ("farcall_xdr", Part::Xdr));
    }

    #[test]
    fn functions_of_c_have_parts() {
        for (name, plain, part) in [
            ("__libc_sendto", "sendto", Part::Communication),
            ("__poll", "poll", Part::Communication),
            ("xdrmem_putlong_aligned", "xdrmem_putlong_aligned", Part::Xdr),
            ("__memmove_avx_unaligned_erms", "memmove", Part::Xdr),
            ("_two_1", "two_1", Part::Dispatch),
            ("<farcall_bench_sunrpc::custom::Datagrams as a::B>::call", "custom::Datagrams", Part::Rest),
            ("clnt_dg_call", "clnt_dg_call", Part::Rest),
        ] {
            let function = user(&[name]);
            assert_eq!((&*function.name, function.part), (plain, part));
        }
    }

    #[test]
    fn system_calls_communicate_or_do_not() {
        assert_eq!(of_system_call("recvmsg").part, Part::Communication);
        assert_eq!(of_system_call("rt_sigprocmask").part, Part::Kernel);
    }
}
