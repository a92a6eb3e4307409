//! The `ferroce` command: runs programs on the software RDMA device, lists its devices,
//! demonstrates them.

#![forbid(unsafe_code)]

mod bench;
mod connection;
mod demo;
mod devices;
mod doctor;
mod dropin;
mod export;
mod manual;
mod paths;
mod run;
mod sockets;
mod target;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// RDMA Verbs and RDMA CM on any Linux machine: no RDMA hardware, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "ferroce", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an RDMA program, unchanged, on the software device
    ///
    /// Its libibverbs and librdmacm are Ferroce's, for it and for the programs that it starts.
    /// So is any copy of them that it brings under another name, as packages of Python do. It sees
    /// the devices in /sys and /dev, too. Streams, signals and the exit status are the program's
    /// own. Static programs, 32-bit ones, those with more rights than their caller, and those with
    /// AddressSanitizer get less; that is said on standard error. If it cannot be started the
    /// status is 127 (not found), 126 (found, but it cannot be executed) or 125 (Ferroce's library
    /// is missing), as with env(1).
    #[command(
        override_usage = "ferroce run [--wire WIRE] [--sockets] [--no-sysfs] [--no-preload] [--] PROGRAM [ARGUMENT]..."
    )]
    Run {
        #[command(flatten)]
        extras: run::Extras,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
        command: Vec<OsString>,
    },
    /// Print shell code that makes a shell's programs run on the software device: eval "$(ferroce
    /// env)"
    ///
    /// A shell does not make the exceptions that `run` makes: started by it, 32-bit programs say
    /// that a library cannot be preloaded, and programs with AddressSanitizer refuse to start.
    /// `ferroce env --no-preload` suits those.
    Env {
        #[command(flatten)]
        extras: run::Extras,
    },
    /// List the devices: one for each network interface that is up and has an address
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Show paths in place of devices: which ones this machine allows, and which ones the
        /// connections of the running processes use, with the reasons
        ///
        /// Two processes of this command try the path within the host and the one between hosts.
        /// Processes of your user (for root: of all users) that have a device open in this network
        /// namespace are asked; nothing of them is changed.
        #[arg(long)]
        paths: bool,
    },
    /// Show the programs of `run --sockets`: their streams, and why other connections stay on TCP
    ///
    /// Processes are shown whose descriptors you may see. Children that a program forks count with
    /// it.
    Sockets,
    /// Say what works here, what does not, and what mends it
    ///
    /// The paths are tried between two processes of this command. The status is 1 if anything
    /// fails, and 0 if some of it merely has less speed.
    Doctor {
        /// A program that is to run on the software device
        #[arg(last = true, value_name = "PROGRAM")]
        program: Option<OsString>,
    },
    /// Try a path (started by `devices --paths`)
    #[command(hide = true)]
    TryPath {
        /// Where the other process listens; without it this one does
        to: Option<SocketAddr>,
    },
    /// Show the whole RDMA workflow between two processes of this machine, every byte verified,
    /// then measure it
    Demo(demo::DemoArgs),
    /// Measure latency, bandwidth and message rate of every operation, side by side with what the
    /// machine can do without RDMA
    Bench(bench::BenchArgs),
    /// Write down what programs see of the devices in /sys and /dev
    #[command(subcommand)]
    Sysfs(Sysfs),
    /// Write the manual pages and the shells' completions below a folder, such as ~/.local/share
    Manual {
        /// The folder; what is missing in it is made
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum Sysfs {
    /// Write it below a folder, for programs that do not go through the C library (static ones, Go)
    ///
    /// The folder gets `sys` and `dev`: mount them, or name `sys` to programs that take the place
    /// of their /sys (`--path.sysfs`). The files say what the devices are at this moment.
    Export {
        /// The folder, empty or missing
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    if let Err(e) = ferroce::log::try_init() {
        eprintln!("ferroce: {e}");
    }
    match cli.command {
        Command::Run { extras, command } => run::run(&command, extras),
        Command::Env { extras } => run::env(extras),
        Command::Devices { json, paths: true } => paths::show(json),
        Command::Devices { json, .. } => devices::list(json),
        Command::Sockets => sockets::show(),
        Command::Doctor { program } => doctor::examine(program.as_deref()),
        Command::TryPath { to } => paths::take_part(to),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => bench::bench(args),
        Command::Sysfs(Sysfs::Export { folder }) => export::export(&folder),
        Command::Manual { folder } => manual::write(Cli::command(), &folder),
    }
}

/// Prints help or what is wrong with the command line. For `run` the status is env(1)'s, so that
/// nobody takes it for the program's.
fn usage(error: &clap::Error) -> ExitCode {
    let running = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    // Nobody is left to tell if the message cannot be printed.
    let _ = error.print();
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if running => ExitCode::from(run::FAILED),
        _ => ExitCode::from(2),
    }
}
