//! `ferroce manual`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;

/// Where a shell looks for completions below a folder such as `/usr/share`, and under which name.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/ferroce"),
    (Shell::Zsh, "zsh/site-functions/_ferroce"),
    (Shell::Fish, "fish/vendor_completions.d/ferroce.fish"),
];

/// Writes the manual pages and completions of a command.
pub(crate) fn write(command: Command, folder: &Path) -> ExitCode {
    match try_write(command, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferroce: {}: {e}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn try_write(mut command: Command, folder: &Path) -> io::Result<()> {
    let pages = folder.join("man/man1");
    std::fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command.clone(), &pages)?;
    for (shell, name) in COMPLETIONS {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        clap_complete::generate(shell, &mut command, "ferroce", &mut File::create(&file)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_command_has_a_page_and_every_shell_its_completions() {
        let folder = std::env::temp_dir().join(format!("ferroce-manual-{}", std::process::id()));
        let command = <crate::Cli as clap::CommandFactory>::command();
        try_write(command.clone(), &folder).unwrap();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        for name in shown.map(Command::get_name) {
            let page = folder.join(format!("man/man1/ferroce-{name}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(page.contains("SYNOPSIS"), "{name}: {page}");
            for (_, file) in COMPLETIONS {
                let text = std::fs::read_to_string(folder.join(file)).unwrap();
                assert!(text.contains(name), "{file} has no {name}");
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
