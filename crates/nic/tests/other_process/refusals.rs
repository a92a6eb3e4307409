//! What the two ends see of work that the target refuses, and what a test prints that another one
//! runs.

use ferroce_proto::verbs::SendOp;

use super::peer::Peer;
use crate::common::run_alone;

/// Work on 8 bytes that ends the connection: what the two ends see, as a line. They are connected
/// anew after it.
pub(crate) fn refused(peer: &mut Peer, op: SendOp) -> String {
    let own = vec![peer.buffer.sge(0, 8)];
    peer.end.send(1, SendOp::Read(peer.remote), own.clone());
    peer.end.done(1);
    peer.end.send(2, op, own);
    let wc = peer.end.completion();
    let theirs = peer.ask("state");
    let line = format!(
        "{:?} {} {:?} {theirs:?}\n",
        wc.status,
        wc.vendor_err,
        peer.end.qp.state()
    );
    peer.connect_again();
    line
}

/// What a test of this program that is run by another one prints behind a word.
pub(crate) fn printed(test: &str, direct: &str) -> Vec<String> {
    let text = run_alone(test, &[("FERROCE_DIRECT", direct)]);
    let (_, seen) = text
        .split_once("seen\n")
        .unwrap_or_else(|| panic!("{text}"));
    seen.lines()
        .take_while(|l| !l.is_empty())
        .map(str::to_owned)
        .collect()
}
