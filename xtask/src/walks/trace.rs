//! What callgrind saw run.

use std::collections::BTreeSet;

/// Functions and files that ran.
#[derive(Debug, Default)]
pub(super) struct Trace {
    functions: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Trace {
    /// Adds callgrind's output, without compressed names: a line per file and function, behind it a
    /// line per place with its own instructions, and one per call, which is followed by the
    /// instructions of the called function.
    pub(super) fn add(&mut self, text: &str) {
        let (mut file, mut function) = ("", "");
        let mut of_call = false;
        for line in text.lines() {
            let of_file = ["fl=", "fi=", "fe="];
            if let Some(name) = of_file.iter().find_map(|key| line.strip_prefix(key)) {
                file = name;
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if line.starts_with("calls=") {
                of_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit())
                && !std::mem::take(&mut of_call)
            {
                self.functions.insert(function.to_owned());
                self.files.insert(file.to_owned());
            }
        }
    }

    /// Whether a file, something in a folder, or a function ran.
    pub(super) fn has(&self, name: &str) -> bool {
        if name.contains('/') || name.contains('.') {
            self.files.iter().any(|file| is_in(file, name))
        } else {
            self.functions
                .iter()
                .any(|function| is_called(function, name))
        }
    }
}

/// Whether a path ends with another one, or leads through it. A crate's path may leave `src` out.
fn is_in(file: &str, name: &str) -> bool {
    let (end, middle) = (format!("/{name}"), format!("/{name}/"));
    [file, &file.replace("/src/", "/")]
        .iter()
        .any(|file| file.ends_with(&end) || file.contains(&middle))
}

/// Whether a symbol is a function of this name, of the type before it if there is one. Symbols are
/// `crate::module::<impl crate::Type>::function`, the functions of C bare; callgrind marks a
/// recursion by an apostrophe and a number.
fn is_called(symbol: &str, name: &str) -> bool {
    let (of, name) = name.rsplit_once("::").unwrap_or(("", name));
    let symbol = symbol.split('\'').next().unwrap_or(symbol);
    let (place, function) = symbol.rsplit_once("::").unwrap_or(("", symbol));
    let mut words = place.split(|c: char| !c.is_alphanumeric() && c != '_');
    function == name && (of.is_empty() || words.any(|word| word == of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_found_by_its_usual_names() {
        let mut trace = Trace::default();
        trace.add(
            "fl=/w/crates/nic/src/objects/qp/post.rs\n\
             fn=ferroce_nic::objects::qp::post::<impl ferroce_nic::objects::qp::Qp>::post_send'2\n\
             7 12\ncfi=/w/crates/os/src/lock/mod.rs\ncfn=lock\ncalls=1 9\n7 500\n\
             fl=/usr/include/infiniband/verbs.h\nfn=ibv_post_send\n3 4\n\
             fl=/w/a.rs\nfn=never\ncalls=1 2\n9 9\n",
        );
        for name in ["Qp::post_send", "post_send", "ibv_post_send"] {
            assert!(trace.has(name), "{name}");
        }
        for name in [
            "qp/post.rs",
            "nic/src/objects",
            "nic/objects/qp",
            "infiniband/verbs.h",
        ] {
            assert!(trace.has(name), "{name}");
        }
        for name in ["Cq::post_send", "send", "lock", "never", "a.rs", "ost.rs"] {
            assert!(!trace.has(name), "{name}");
        }
    }
}
