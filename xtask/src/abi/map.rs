//! Version scripts of linkers.

use std::collections::BTreeSet;

use super::table::Node;

/// The global symbols of a version script, each with its node.
pub(super) fn symbols(script: &str) -> Result<BTreeSet<(Node, String)>, String> {
    let script = without_comments(script);
    let mut symbols = BTreeSet::new();
    let mut rest = script.as_str();
    while let Some((name, behind)) = rest.split_once('{') {
        let (body, behind) = behind
            .split_once('}')
            .ok_or_else(|| format!("{} does not end", name.trim()))?;
        let node = Node::parse(name.trim())?;
        symbols.extend(globals(body).map(|symbol| (node.clone(), symbol.to_owned())));
        // The node that this one inherits from stands before the semicolon.
        rest = behind.split_once(';').map_or("", |(_, next)| next);
    }
    Ok(symbols)
}

/// What a node's body lists before `local:`.
fn globals(body: &str) -> impl Iterator<Item = &str> {
    let listed = body.split("local:").next().unwrap_or_default();
    let listed = listed.trim().trim_start_matches("global:");
    listed.split(';').map(str::trim).filter(|s| !s.is_empty())
}

fn without_comments(script: &str) -> String {
    let mut parts = script.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once("*/").map_or("", |(_, code)| code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nodes_with_their_global_symbols() {
        let script = "\
/* A comment { with; braces } */
LIB_1.0 {
\tglobal:
\t\ta;
\t\t/* between */ b;
\tlocal: *;
};

LIB_1.1 {
\tglobal:
\t\ta;
} LIB_1.0;
";
        let found: Vec<_> = symbols(script)
            .unwrap_or_default()
            .into_iter()
            .map(|(node, symbol)| format!("{node} {symbol}"))
            .collect();
        assert_eq!(found, ["LIB_1.0 a", "LIB_1.0 b", "LIB_1.1 a"]);
        assert!(symbols("LIB_1.0 { a;").is_err());
    }
}
