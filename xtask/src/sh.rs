//! Running commands.

use std::process::Command;

/// Prints a command and runs it with this program's own streams; an error unless it ends with 0.
pub(crate) fn step(mut command: Command) -> Result<(), String> {
    println!("# {}", line(&command));
    let status = command
        .status()
        .map_err(|e| format!("{}: {e}", line(&command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{}: {status}", line(&command)))
    }
}

/// Runs a command to its end; its standard output, or an error with what it said on standard error.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String, String> {
    output_of(Command::new(program).args(args))
}

/// The same of a command with settings of its own.
pub(crate) fn output_of(command: &mut Command) -> Result<String, String> {
    let done = command
        .output()
        .map_err(|e| format!("{}: {e}", line(command)))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(format!(
            "{}: {}",
            line(command),
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    }
}

/// A command as a person would type it (without quoting).
pub(crate) fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
