//! The simulator's command: `soak` runs many seeds, `replay` runs one seed again, and `bulk` transfers
//! large messages and streams.

#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use farcall_proto::{Mutant, Rule};
use farcall_sim::net::{MICROS, Path, SECS};
use farcall_sim::{Bulk, Flood, Load, Soak, Strangers, Summary, grants, model, onc, run, shared_memory};
use indicatif::{ProgressBar, ProgressStyle};

/// Simulates farcall's protocols under random faults, which a seed determines.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds on all processors and prints one line of JSON.
    Soak(SoakArgs),
    /// Runs one seed again. With --verbose, prints every datagram and event.
    Replay(ReplayArgs),
    /// Transfers large messages or streams over a path that loses datagrams in both directions.
    Bulk(BulkArgs),
    /// Floods a server with keys with forged first packets, and then another one with handshakes of strangers,
    /// while honest clients call and join. Prints two lines of JSON. Fails if the server computes or keeps
    /// anything because of forged packets, if an honest call fails, or if strangers get more than their share.
    Flood(FloodArgs),
}

#[derive(Args)]
struct SoakArgs {
    /// The number of seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The number of calls of all seeds together; each seed makes at least one [default: 1000 for each seed].
    #[arg(long)]
    calls: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Breaks this rule of a protocol on purpose; --list-breaks prints the names of the rules.
    #[arg(long = "break", value_name = "NAME", value_parser = broken)]
    broken: Option<Broken>,
    /// Stops at the first seed that fails.
    #[arg(long)]
    first: bool,
    /// Runs only the seeds whose ends have keys, about one in five, and no other models. The calls are then
    /// distributed among all seeds as without it, so about one in five of them is made.
    #[arg(long)]
    secret: bool,
    /// Prints the names of the rules that can be broken.
    #[arg(long)]
    list_breaks: bool,
    /// Prints only the line of JSON, and on standard error the seeds that failed.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ReplayArgs {
    /// The seed to run.
    #[arg(long)]
    seed: u64,
    /// The number of calls in the seed's run.
    #[arg(long, default_value_t = 1000)]
    calls: u64,
    /// Breaks this rule on purpose, as in the run that failed.
    #[arg(long = "break", value_name = "NAME", value_parser = broken)]
    broken: Option<Broken>,
    /// Prints every datagram and event.
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
struct BulkArgs {
    /// The size of each transfer, in mebibytes.
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// What the bytes are: the result of a call, its arguments, or a stream down from the server or up to it.
    #[arg(long, default_value = "result", value_parser = ["result", "arguments", "down", "up"])]
    load: String,
    /// How many transfers follow one another.
    #[arg(long, default_value_t = 1)]
    transfers: u32,
    /// The share of datagrams that the path loses in each direction, in percent.
    #[arg(long, default_value_t = 20)]
    loss: u32,
    /// The delay of the path in each direction, in microseconds.
    #[arg(long, default_value_t = 100)]
    delay: u64,
    /// The path's rate, in megabits per second; 0 means no limit.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// The largest datagram that the path lets pass, in bytes.
    #[arg(long, default_value_t = 1472)]
    mtu: usize,
    /// The seed of the network.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints one line of JSON and nothing else.
    #[arg(long)]
    json: bool,
}

/// How many datagrams strangers who have proven their addresses send in a second of virtual time.
const STRANGERS: u64 = 12_000;

#[derive(Args)]
struct FloodArgs {
    /// The number of forged packets.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// How many of them are sent in a second of virtual time.
    #[arg(long, default_value_t = 200_000)]
    rate: u64,
    /// The seed of the keys and of the packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Breaks this rule of the protocol on purpose, such as proof-unchecked.
    #[arg(long = "break", value_name = "NAME", value_parser = rule)]
    broken: Option<Rule>,
}

/// A rule to break on purpose. The default value breaks no rule.
#[derive(Clone, Copy, Default)]
struct Broken {
    name: &'static str,
    /// The fault that breaks the rule, if it is a rule of the packet exchange protocol.
    mutant: Mutant,
    /// The rule, if it is a rule of the model of shared memory, of ONC RPC or of several grants.
    model: Option<model::Rule>,
}

impl Broken {
    fn all() -> impl Iterator<Item = Broken> {
        let protocol = Rule::ALL.iter().copied().filter(Rule::is_simulated);
        let protocol =
            protocol.map(|rule| Broken { name: rule.name(), mutant: Mutant::of(rule), model: None });
        let models = model::Rule::all();
        protocol.chain(models.map(|(rule, name)| Broken { name, mutant: Mutant::NONE, model: Some(rule) }))
    }
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Soak(args) if args.list_breaks => {
            Broken::all().for_each(|rule| println!("{}", rule.name));
            ExitCode::SUCCESS
        }
        Command::Soak(args) => soak(&args),
        Command::Replay(args) => replay(&args),
        Command::Bulk(args) => bulk(&args),
        Command::Flood(args) => flood(&args),
    }
}

/// Returns the rule of this name.
fn broken(name: &str) -> Result<Broken, String> {
    Broken::all()
        .find(|rule| rule.name == name)
        .ok_or_else(|| "there is no such rule; `soak --list-breaks` prints the names of the rules".into())
}

/// Returns the rule of the protocol with this name.
fn rule(name: &str) -> Result<Rule, String> {
    let named = Rule::ALL.iter().find(|rule| rule.name() == name);
    named
        .copied()
        .ok_or_else(|| "the protocol has no such rule; see crates/farcall-proto/src/mutant.rs".into())
}

fn soak(args: &SoakArgs) -> ExitCode {
    let Broken { mutant, model, .. } = args.broken.unwrap_or_default();
    let soak = Soak {
        seeds: args.seeds,
        calls: args.calls.unwrap_or(args.seeds.saturating_mul(1000)),
        from: args.from,
        mutant,
        broken: model,
        threads: 0,
        first: args.first,
        secret: args.secret,
    };
    let bar = progress(&soak, args.json);
    let start = Instant::now();
    // The summary reports a panic as a violation of its seed, so the panic's own message is suppressed.
    std::panic::set_hook(Box::new(|_| {}));
    let summary = soak.run(&|report| bar.inc(report.calls));
    let _ = std::panic::take_hook();
    bar.finish_and_clear();
    println!("{}", summary.json());
    if !args.json {
        tell(&summary, start.elapsed().as_secs_f64());
    }
    tell_failing(&summary, args.broken);
    if summary.failing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn progress(soak: &Soak, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:40} {human_pos} of {human_len} calls, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(soak.calls).with_style(style)
}

/// Prints what the line of JSON does not contain: the time, the rate of calls, and the violated invariants.
fn tell(summary: &Summary, seconds: f64) {
    let rate = summary.calls as f64 / seconds;
    eprintln!("{seconds:.1} s, {rate:.0} calls per second; violations: {:?}", summary.broken());
}

/// Prints the first failing seeds, and the commands that run them again.
fn tell_failing(summary: &Summary, broken: Option<Broken>) {
    for failing in summary.failing.iter().take(5) {
        let broken = broken.map(|rule| format!(" --break {}", rule.name)).unwrap_or_default();
        eprintln!("seed {}: {}", failing.seed, failing.violation);
        eprintln!(
            "  cargo run --release -p farcall-sim -- replay --seed {} --calls {}{broken} --verbose",
            failing.seed, failing.calls
        );
    }
}

fn replay(args: &ReplayArgs) -> ExitCode {
    let (Broken { mutant, model, .. }, part) = (args.broken.unwrap_or_default(), args.calls.div_ceil(4));
    let report = run(args.seed, args.calls, mutant, args.verbose);
    let memory = shared_memory::run(args.seed, part, model);
    println!(
        "seed {}: {} calls, {} datagrams, trace hash {:016x}",
        report.seed, report.calls, report.datagrams, report.trace_hash
    );
    println!("through shared memory: {} calls, trace hash {:016x}", memory.tally.calls, memory.trace_hash);
    let onc = onc::run(args.seed, part, model);
    println!("by ONC RPC: {} calls, trace hash {:016x}", onc.tally.calls, onc.trace_hash);
    let grants = grants::run(args.seed, part, model);
    println!("with several grants: {} calls, trace hash {:016x}", grants.tally.calls, grants.trace_hash);
    let violations = [report.violation, memory.violation, onc.violation, grants.violation];
    violations.iter().flatten().for_each(|violation| println!("{violation}"));
    if violations.iter().any(Option::is_some) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn bulk(args: &BulkArgs) -> ExitCode {
    let mut path = Path::clean(args.delay * MICROS);
    path.loss = args.loss * 10_000;
    path.rate = args.rate * 125_000;
    path.queue = SECS / 100;
    path.mtu = args.mtu;
    let bytes = args.mib << 20;
    let load = match args.load.as_str() {
        "arguments" => Load::Arguments,
        "down" => Load::Down,
        "up" => Load::Up,
        _ => Load::Result,
    };
    let t =
        Bulk { bytes, load, transfers: args.transfers.max(1), path, seed: args.seed, mutant: Mutant::NONE }
            .run();
    let seconds = |nanos: u64| nanos as f64 / SECS as f64;
    let ((seconds, last), all) =
        ((seconds(t.elapsed), seconds(t.last)), args.transfers.max(1) as usize * bytes);
    let ratio = t.sent.0.max(t.client_sent.0) as f64 / all as f64;
    if args.json {
        println!(
            r#"{{"bytes":{bytes},"loss_percent":{},"intact":{},"seconds":{seconds:.3},"last_seconds":{last:.3},"repeated":{},"sent_ratio":{ratio:.4},"server_datagrams":{},"client_datagrams":{},"client_bytes":{},"idle_datagrams":{}}}"#,
            args.loss, t.intact, t.repeated, t.sent.1, t.client_sent.1, t.client_sent.0, t.idle_datagrams
        );
    } else {
        println!(
            "{} MiB with {} % loss in each direction: intact {}, {seconds:.3} s of virtual time ({last:.3} s the last time), {} repetitions, {ratio:.3} times the bytes sent",
            args.mib, args.loss, t.intact, t.repeated
        );
        println!(
            "server sent {} datagrams; client sent {} datagrams, {} bytes; both sent {} datagrams in the idle hour afterwards",
            t.sent.1, t.client_sent.1, t.client_sent.0, t.idle_datagrams
        );
    }
    if t.intact { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn flood(args: &FloodArgs) -> ExitCode {
    let FloodArgs { packets, rate, seed, broken } = *args;
    let start = Instant::now();
    let mutant = broken.map(Mutant::of).unwrap_or_default();
    let flooded = Flood { packets, rate, seed, mutant }.run();
    println!(
        r#"{{"packets":{},"answers":{},"computed":{},"kept":{},"calls":{},"failed":{},"slowest_us":{}}}"#,
        flooded.packets,
        flooded.answers,
        flooded.computed,
        flooded.kept,
        flooded.calls,
        flooded.failed,
        flooded.slowest / MICROS
    );
    let asked = Strangers { rate: STRANGERS, seed, mutant }.run();
    println!(
        "{{\"handshakes\":{},\"again\":{},\"looked\":{},\"joined\":{},\"failed\":{},\"before_newcomers\":{},\
         \"before_known\":{},\"waits\":{},\"share\":{}}}",
        asked.computed,
        asked.again,
        asked.looked,
        asked.joined,
        asked.failed,
        asked.before_newcomers,
        asked.before_known,
        asked.waits,
        asked.share
    );
    eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    if flooded.is_harmless(packets) && asked.is_fair() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
