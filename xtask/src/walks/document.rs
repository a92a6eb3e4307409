//! What the steps of a walk name.

/// Words that are neither functions nor paths.
const CRATES: [&str; 5] = ["abi", "ferroce", "nic", "os", "proto"];

/// A numbered step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u32,
    /// Functions, files and folders, as they are written.
    pub(super) names: Vec<String>,
}

/// The steps of the walk with a heading that begins so.
pub(super) fn steps(document: &str, heading: &str) -> Result<Vec<Step>, String> {
    let title = |line: &str| {
        line.strip_prefix("### ")
            .is_some_and(|t| t.starts_with(heading))
    };
    let section = document.lines().skip_while(|line| !title(line)).skip(1);
    let mut steps: Vec<Step> = Vec::new();
    let mut is_step = false;
    for line in section.take_while(|line| !line.starts_with('#')) {
        if let Some(number) = number(line) {
            steps.push(Step {
                number,
                names: Vec::new(),
            });
            is_step = true;
        } else if !line.starts_with(' ') {
            is_step = false;
        }
        if let (true, Some(step)) = (is_step, steps.last_mut()) {
            let quoted = line.split('`').skip(1).step_by(2);
            step.names
                .extend(quoted.filter(|word| is_name(word)).map(str::to_owned));
        }
    }
    if steps.iter().any(|step| !step.names.is_empty()) {
        Ok(steps)
    } else {
        Err(format!(
            "ARCHITECTURE.md has no walk \"{heading}\" with steps"
        ))
    }
}

fn number(line: &str) -> Option<u32> {
    line.split_once(". ")?.0.parse().ok()
}

/// A function or a path. Crates and structures are neither.
fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.:".contains(c);
    word.chars().all(plain) && !word.is_empty() && !CRATES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_steps_count() {
        let text = "### One SEND\nTwo processes, `a/b.rs`.\n\n1. `Qp::post` (`qp/post.rs`) of\n   `os/src`, `struct x`\n2. `proto`\n\nElsewhere `c.rs`.\n### Next\n1. `d.rs`\n";
        let steps = steps(text, "One").unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0].names, ["Qp::post", "qp/post.rs", "os/src"]);
        assert_eq!(steps[1].names, [""; 0]);
        assert!(super::steps(text, "Two").is_err());
    }
}
