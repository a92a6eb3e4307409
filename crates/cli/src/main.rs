//! The `ferroce` command: runs programs on the software RDMA device, lists its devices,
//! demonstrates them.

#![forbid(unsafe_code)]

mod bench;
mod connection;
mod demo;
mod devices;
mod dropin;
mod manual;
mod needs;
mod paths;
mod run;

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
    /// Streams, signals and the exit status are the program's own. If it cannot be started the
    /// status is 127 (not found), 126 (found, but it cannot be executed) or 125 (Ferroce's library
    /// is missing), as with env(1).
    #[command(override_usage = "ferroce run [--sysfs | --no-sysfs] [--] PROGRAM [ARGUMENT]...")]
    Run {
        #[command(flatten)]
        show: Show,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
        command: Vec<OsString>,
    },
    /// Print shell code that makes a shell's programs run on the software device: eval "$(ferroce
    /// env)"
    Env {
        #[command(flatten)]
        show: Show,
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
    /// Try a path (started by `devices --paths`)
    #[command(hide = true)]
    TryPath {
        /// Where the other process listens; without it this one does
        to: Option<SocketAddr>,
    },
    /// Show the whole RDMA workflow between two processes of this machine, every byte verified,
    /// then measure it
    Demo(demo::Args),
    /// Measure latency, bandwidth and message rate of every operation, side by side with what the
    /// machine can do without RDMA
    Bench(bench::Args),
    /// Write the manual pages and the shells' completions below a folder, such as ~/.local/share
    Manual {
        /// The folder; what is missing in it is made
        folder: PathBuf,
    },
}

/// What a program finds besides the two libraries.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Show {
    /// Show the devices in /sys/class/infiniband and /dev/infiniband too
    ///
    /// Some programs look there and do without a device that they do not see: UCX, Open MPI over
    /// UCX, ibstat, ibstatus, anything that reads counters. A small library is preloaded into the
    /// program and those that it starts; nothing is written anywhere. Programs that do not go
    /// through the C library (static ones, Go) do not see it. Without this, `run` does so for
    /// programs that load UCX at their start.
    #[arg(long)]
    sysfs: bool,
    /// Do not show them, whatever the program loads
    #[arg(long, conflicts_with = "sysfs")]
    no_sysfs: bool,
}

impl Show {
    /// Whether a program is shown the devices.
    fn sysfs_to(self, program: Option<&OsString>) -> bool {
        self.sysfs || !self.no_sysfs && program.is_some_and(|program| needs::sysfs(program))
    }
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
        Command::Run { show, command } => run::run(&command, show.sysfs_to(command.first())),
        Command::Env { show } => run::env(show.sysfs),
        Command::Devices { json, paths: true } => paths::show(json),
        Command::Devices { json, .. } => devices::list(json),
        Command::TryPath { to } => paths::take_part(to),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => bench::bench(args),
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
