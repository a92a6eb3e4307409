//! The file: the releases that were read, and each symbol with its node and its first release.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What stands above the lines.
const HEAD: &str = "\
# What libibverbs.so.1 and librdmacm.so.1 of rdma-core export: the releases that were read, then
# each version node with its symbols and the first of those releases that has them there.
# Written by `cargo xtask abi --from RDMA_CORE_SOURCE`, once for each release, in any order.
";

/// The family of nodes of the interface between libibverbs and its providers. A release has one.
const PRIVATE: &str = "IBVERBS_PRIVATE";

/// A version node: `IBVERBS_1.10` is of the family `IBVERBS` and has version 1.10.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    family: String,
    version: Release,
}

/// A number with points. Its parts are compared as numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(Vec<u32>);

/// What one release exports.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) release: Release,
    pub(super) symbols: BTreeSet<(Node, String)>,
}

/// What the file holds.
#[derive(Debug, Default)]
pub(super) struct Table {
    releases: BTreeSet<Release>,
    since: BTreeMap<(Node, String), Release>,
}

impl Table {
    /// Adds a release.
    ///
    /// A node never loses a symbol, as programs would no longer load; if a private symbol goes, the
    /// private node changes its number. But some releases list functions that they do not define,
    /// which a later one tidied up. So a symbol that a later release does not list in the same node
    /// was never exported.
    pub(super) fn add(&mut self, tree: Tree) {
        let Tree { release, symbols } = tree;
        let nodes: BTreeSet<_> = symbols.iter().map(|(node, _)| node.clone()).collect();
        self.since.retain(|entry, since| {
            *since > release || symbols.contains(entry) || !nodes.contains(&entry.0)
        });
        for entry in symbols {
            let is_new = !self.since.contains_key(&entry);
            if is_new && self.last_with(&entry.0).is_some_and(|r| r > release) {
                continue;
            }
            let since = self.since.entry(entry).or_insert_with(|| release.clone());
            *since = release.clone().min(since.clone());
        }
        self.releases.insert(release);
    }

    /// The last release that was read and has the node.
    fn last_with(&self, node: &Node) -> Option<Release> {
        let first_of = |node: &Node| {
            let symbols = self.since.iter().filter(|((n, _), _)| n == node);
            symbols.map(|(_, since)| since).min()
        };
        let first = first_of(node)?;
        // A private node ends where the next one begins.
        let next = self.since.keys().map(|(n, _)| n);
        let next = next
            .filter(|n| *n > node && n.family == PRIVATE && node.family == PRIVATE)
            .filter_map(first_of)
            .min();
        let within = |r: &&Release| *r >= first && next.is_none_or(|next| *r < next);
        self.releases.iter().rfind(within).cloned()
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                ["release", release] => {
                    table.releases.insert(Release::parse(release)?);
                }
                [node, symbol, since] => {
                    let entry = (Node::parse(node)?, symbol.to_owned());
                    table.since.insert(entry, Release::parse(since)?);
                }
                _ => return Err(format!("not a line of the table: {line}")),
            }
        }
        Ok(table)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for release in &self.releases {
            writeln!(f, "release {release}")?;
        }
        for ((node, symbol), since) in &self.since {
            writeln!(f, "{node} {symbol} {since}")?;
        }
        Ok(())
    }
}

impl Node {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let (family, version) = name
            .rsplit_once('_')
            .ok_or_else(|| format!("{name} is not the name of a version node"))?;
        Ok(Self {
            family: family.to_owned(),
            version: Release::parse(version)?,
        })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.family, self.version)
    }
}

impl Release {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split('.').map(str::parse);
        let parts = parts.collect::<Result<_, _>>();
        parts
            .map(Self)
            .map_err(|_| format!("{text} is not a version"))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(release: &str, symbols: &[(&str, &str)]) -> Tree {
        let symbols = symbols
            .iter()
            .map(|(node, symbol)| (Node::parse(node).unwrap(), (*symbol).to_owned()));
        Tree {
            release: Release::parse(release).unwrap(),
            symbols: symbols.collect(),
        }
    }

    /// Three releases: one lists a function that it does not define, the next one has a symbol more
    /// in each node, the last one another private node.
    fn trees() -> [Tree; 3] {
        let old = [
            ("IBVERBS_1.0", "a"),
            ("IBVERBS_1.0", "undefined"),
            ("IBVERBS_PRIVATE_34", "p"),
        ];
        let middle = [
            ("IBVERBS_1.0", "a"),
            ("IBVERBS_1.9", "b"),
            ("IBVERBS_PRIVATE_34", "p"),
            ("IBVERBS_PRIVATE_34", "q"),
        ];
        let new = [
            ("IBVERBS_1.0", "a"),
            ("IBVERBS_1.9", "b"),
            ("IBVERBS_1.10", "c"),
            ("IBVERBS_PRIVATE_57", "q"),
        ];
        [
            tree("34.0", &old),
            tree("44.0", &middle),
            tree("57.0", &new),
        ]
    }

    #[test]
    fn releases_may_be_read_in_any_order() {
        let expected = "\
release 34.0
release 44.0
release 57.0
IBVERBS_1.0 a 34.0
IBVERBS_1.9 b 44.0
IBVERBS_1.10 c 57.0
IBVERBS_PRIVATE_34 p 34.0
IBVERBS_PRIVATE_34 q 44.0
IBVERBS_PRIVATE_57 q 57.0
";
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            let mut all = trees().map(Some);
            let mut table = Table::default();
            for at in order {
                table.add(all[at].take().unwrap());
            }
            assert_eq!(table.to_string(), format!("{HEAD}{expected}"), "{order:?}");
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut table = Table::default();
        trees().into_iter().for_each(|tree| table.add(tree));
        let text = table.to_string();
        assert_eq!(Table::parse(&text).unwrap().to_string(), text);
        assert!(Table::parse("a b").is_err());
    }
}
