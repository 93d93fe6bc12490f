//! Tests against NFS clients and servers of other projects: libnfs, qemu, nmap, showmount, nfs-ganesha.

use crate::namespace;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{fs, io};

use farcall_nfs::client::Mounted;
use farcall_nfs::files::Files;
use farcall_nfs::protocol::mount::MountV3;
use farcall_nfs::protocol::nfs::{Ftype3, NfsV3};
use farcall_nfs::{Export, Mounts};
use farcall_onc::Server;
use farcall_onc::rpcbind::{self, Mapper};
use farcall_onc::server::ServerBuilder;

/// The length of a file in bytes: enough for many READs and WRITEs, and not a multiple of any buffer size.
const LARGE: usize = 10_000_003;

/// Returns a directory with files, directories and links.
fn directory() -> tempfile::TempDir {
    // No link may be on the path, because ganesha exports none.
    let directory = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
    let path = directory.path();
    fs::write(path.join("hello.txt"), "hello\n").unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    fs::write(path.join("sub/large"), large()).unwrap();
    std::os::unix::fs::symlink("hello.txt", path.join("link")).unwrap();
    directory
}

fn large() -> Vec<u8> {
    (0..LARGE).map(|index| ((index * 7 % 251) ^ (index >> 12)) as u8).collect()
}

fn serve(directory: &Path, address: &str, builder: ServerBuilder) -> Server {
    let files = Arc::new(Files::open(directory).unwrap());
    let builder = builder.program::<dyn NfsV3>(Arc::new(Export::new(files.clone())));
    let builder = builder.program::<dyn MountV3>(Arc::new(Mounts::new(files, "/exported")));
    builder.address(address.parse().unwrap()).start().unwrap()
}

/// Prints a cell of the table of counterparts in crates/farcall-onc/tests/interop/table.txt.
fn shown(counterpart: &str, network: &str, role: &str) {
    println!("interop: {counterpart} | {network} | {role}");
}

fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Returns the output of a program. If the program is not installed, prints why the test is skipped, and
/// returns `None`.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Ok(output) => output,
        Err(why) => {
            skip(&format!("{program} cannot be run: {why}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(said)
}

fn is_inside(test: &str) -> bool {
    namespace::enter(&format!("interop::{test}")).unwrap_or_else(|why| {
        skip(&format!("{test}: {why}"));
        false
    })
}

/// Does everything that a client does, with this project's client.
fn client(mounted: &Mounted, below: &str, network: &str) {
    let root = mounted.find(below).unwrap();
    let mut names: Vec<(String, Option<Ftype3>)> = mounted
        .list(&root)
        .unwrap()
        .into_iter()
        .map(|(name, attributes)| (name.to_string(), attributes.map(|attributes| attributes.r#type)))
        .collect();
    names.sort();
    let expected = [("hello.txt", Ftype3::Nf3reg), ("link", Ftype3::Nf3lnk), ("sub", Ftype3::Nf3dir)];
    assert_eq!(names, expected.map(|(name, kind)| (name.to_string(), Some(kind))));
    let file = mounted.find(&format!("{below}/sub/large")).unwrap();
    assert_eq!(mounted.stat(file.clone()).unwrap().size, LARGE as u64);
    let mut read = Vec::new();
    assert_eq!(mounted.read(&file, &mut read).unwrap(), LARGE as u64);
    assert!(read == large());
    let copy = format!("{below}/sub/copy-{network}");
    assert_eq!(mounted.write(&copy, &mut &large()[..]).unwrap(), LARGE as u64);
    let mut again = Vec::new();
    mounted.read(&mounted.find(&copy).unwrap(), &mut again).unwrap();
    assert!(again == large());
    let why = mounted.find(&format!("{below}/nothing")).unwrap_err();
    assert_eq!(why.to_string(), "NFS3ERR_NOENT");
}

#[test]
fn our_client_and_our_server() {
    let directory = directory();
    let server = serve(directory.path(), "127.0.0.1:0", Server::builder());
    for (scheme, address) in [("tcp", server.tcp()), ("udp", server.udp())] {
        let address = format!("{scheme}://{}", address.unwrap());
        let mount = |path| Mounted::mount(&address, &address, path);
        assert_eq!(mount("/other").unwrap_err().to_string(), "cannot be mounted: MNT3ERR_NOENT");
        let (mounted, rest) = mount("/exported/sub").unwrap();
        assert_eq!(rest, "/sub");
        client(&mounted, "", scheme);
    }
}

#[test]
fn libnfs_lists_reads_and_writes() {
    let directory = directory();
    for (network, host, address) in [("tcp", "127.0.0.1", "127.0.0.1:0"), ("tcp6", "::1", "[::1]:0")] {
        if std::net::TcpListener::bind(address).is_err() {
            // Some machines have no IPv6.
            continue;
        }
        let server = serve(directory.path(), address, Server::builder());
        let port = server.tcp().unwrap().port();
        let url = |path: &str| format!("nfs://{host}/exported{path}?nfsport={port}&mountport={port}");
        let Some(listed) = run("nfs-ls", &[&url("")]) else { return };
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert!(listed.lines().any(|line| line.starts_with("lrwx") && line.ends_with("link")), "{listed}");
        assert_eq!(run("nfs-cat", &[&url("/hello.txt")]).unwrap(), "hello\n");
        let local = tempfile::tempdir().unwrap();
        let large_file = directory.path().join("sub/large");
        let copied = format!("/sub/copied-{network}");
        run("nfs-cp", &[large_file.to_str().unwrap(), &url(&copied)]).unwrap();
        assert!(fs::read(directory.path().join(&copied[1..])).unwrap() == large());
        let back = local.path().join("back");
        run("nfs-cp", &[&url(&copied), back.to_str().unwrap()]).unwrap();
        assert!(fs::read(back).unwrap() == large());
        shown("libnfs: nfs-ls, nfs-cat, nfs-cp", network, "serve");
    }
}

#[test]
fn qemu_keeps_disks_in_the_export() {
    if !is_inside("qemu_keeps_disks_in_the_export") {
        return;
    }
    let (directory, local) = (directory(), tempfile::tempdir().unwrap());
    let mapper = Mapper::default();
    let _mapping = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap()).start().unwrap();
    let _server = serve(directory.path(), "127.0.0.1:2049", Server::builder().register_at(&mapper));
    let url = |name: &str| format!("nfs://127.0.0.1/exported/{name}");
    if run("qemu-img", &["create", "-f", "raw", &url("disk.img"), "1M"]).is_none() {
        return;
    }
    assert_eq!(fs::metadata(directory.path().join("disk.img")).unwrap().len(), 1 << 20);
    let said = run("qemu-img", &["info", &url("disk.img")]).unwrap();
    assert!(said.contains("virtual size: 1 MiB"), "{said}");
    // A disk image is copied there in two formats, and comes back unchanged.
    let (disk, back) = (local.path().join("disk"), local.path().join("back"));
    let content: Vec<u8> =
        large().into_iter().chain(std::iter::repeat_n(0, 5 << 20)).take(12 << 20).collect();
    fs::write(&disk, &content).unwrap();
    let (disk, back) = (disk.to_str().unwrap(), back.to_str().unwrap());
    for format in ["raw", "qcow2"] {
        let there = url(&format!("disk.{format}"));
        run("qemu-img", &["convert", "-f", "raw", "-O", format, disk, &there]).unwrap();
        run("qemu-img", &["compare", "-f", "raw", "-F", format, disk, &there]).unwrap();
        run("qemu-img", &["convert", "-f", format, "-O", "raw", &there, back]).unwrap();
        assert!(fs::read(back).unwrap() == content, "{format}");
    }
    run("qemu-img", &["check", "-f", "qcow2", &url("disk.qcow2")]).unwrap();
    shown("qemu-img", "tcp", "serve");
}

#[test]
fn programs_that_know_only_the_host_find_the_server() {
    if !is_inside("programs_that_know_only_the_host_find_the_server") {
        return;
    }
    let directory = directory();
    let mapper = Mapper::default();
    let builder = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap());
    let _mapping = builder.address("[::]:111".parse().unwrap()).start().unwrap();
    let builder = || Server::builder().register_at(&mapper);
    {
        let _server =
            serve(directory.path(), "127.0.0.1:2049", builder().address("[::1]:2049".parse().unwrap()));
        showmount("tcp", "127.0.0.1");
        showmount("tcp6", "::1");
        for (network, host) in [("tcp", "127.0.0.1"), ("tcp6", "::1")] {
            if let Some(said) = run("nfs-ls", &[&format!("nfs://{host}/exported/sub")]) {
                assert!(said.contains("large"), "{said}");
                shown("libnfs, through our port mapper", network, "serve");
            }
        }
        nmap("tcp", &["-p", "111", "127.0.0.1"]);
        nmap("tcp6", &["-6", "-p", "111", "::1"]);
    }
    // If a server is reachable only by UDP, UDP is used.
    let files = Arc::new(Files::open(directory.path()).unwrap());
    // Each program has a port of its own. nmap's client may use one port for both of its sockets, and then
    // either socket may receive an answer.
    let nfs = builder().program::<dyn NfsV3>(Arc::new(Export::new(files.clone())));
    let _nfs = nfs.udp("127.0.0.1:2049".parse().unwrap()).udp("[::1]:2049".parse().unwrap()).start().unwrap();
    let mounts = builder().program::<dyn MountV3>(Arc::new(Mounts::new(files, "/exported")));
    let _mounts =
        mounts.udp("127.0.0.1:2050".parse().unwrap()).udp("[::1]:2050".parse().unwrap()).start().unwrap();
    showmount("udp", "127.0.0.1");
    showmount("udp6", "::1");
    nmap("udp", &["-sU", "-p", "U:111", "127.0.0.1"]);
    nmap("udp6", &["-6", "-sU", "-p", "U:111", "::1"]);
}

fn showmount(network: &str, host: &str) {
    if let Some(said) = run("showmount", &["-e", host]) {
        assert!(said.contains("/exported"), "{said}");
        shown("showmount", network, "serve");
    }
}

/// Runs nmap's own NFS client, which is written in nmap's script language. Only one script runs at a time,
/// because two may use the same port.
fn nmap(network: &str, ports: &[&str]) {
    for (script, answer) in
        [("nfs-ls", "hello.txt"), ("nfs-showmount", "/exported"), ("nfs-statfs", "1K-blocks")]
    {
        let scripts = format!("rpcinfo,{script}");
        let Some(said) = run("nmap", &[ports, &["-n", "-Pn", "--script", &scripts]].concat()) else { return };
        assert!(said.contains(answer), "{said}");
    }
    shown("nmap: nfs-ls, nfs-showmount, nfs-statfs", network, "serve");
}

/// A server of another project, until it is dropped.
struct Ganesha(Child);

impl Ganesha {
    /// Exports a directory as `/vfs`, and waits until the server reports that it does.
    fn start(directory: &Path, place: &Path) -> io::Result<Ganesha> {
        let configuration = place.join("ganesha.conf");
        let text = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false;\n\
             Enable_RQUOTA = false; mount_path_pseudo = true; Enable_UDP = true; }}\n\
             EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /vfs; Access_Type = RW; Squash = No_Root_Squash;\n\
             Protocols = 3; Transports = UDP, TCP; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
            directory.display()
        );
        fs::write(&configuration, text)?;
        fs::create_dir_all("/run/ganesha")?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(&configuration).args(["-L", "STDOUT", "-N", "NIV_EVENT", "-p"]);
        let mut child =
            command.arg(place.join("pid")).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut said = String::new();
        for line in lines.lines() {
            let line = line?;
            said = said + &line + "\n";
            if line.contains("NFS SERVER INITIALIZED") {
                return Ok(Ganesha(child));
            }
        }
        Err(io::Error::other(said))
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn our_client_and_ganesha() {
    if !is_inside("our_client_and_ganesha") {
        return;
    }
    // The server registers at the present port mapper, which is this project's.
    let mapper = Mapper::default();
    let all = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap());
    let all = all.address("[::]:111".parse().unwrap());
    fs::create_dir_all("/run/rpcbind").unwrap();
    let _mapping = all.unix(rpcbind::SOCKET).start().unwrap();
    let (directory, place) = (directory(), tempfile::tempdir().unwrap());
    let _ganesha = match Ganesha::start(directory.path(), place.path()) {
        Ok(ganesha) => ganesha,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return skip("ganesha.nfsd is not installed"),
        Err(why) => panic!("{why}"),
    };
    for (network, host) in [("tcp", "127.0.0.1"), ("udp", "127.0.0.1"), ("tcp6", "[::1]"), ("udp6", "[::1]")]
    {
        let at = |port: u16| format!("{}://{host}:{port}", network.trim_end_matches('6'));
        let (mounted, rest) = Mounted::mount(&at(20048), &at(2049), "/vfs").unwrap();
        client(&mounted, rest, network);
        shown("nfs-ganesha", network, "call");
    }
    assert!(mapper.entries().iter().any(|entry| entry.program == 100_003), "{:?}", mapper.entries());
    shown("nfs-ganesha, registering at our port mapper", "unix", "serve");
}
