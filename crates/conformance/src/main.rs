//! Plays the cases that the environment names (see `runner`), in an optimised build: those that
//! move very much take too long in any other.

use ferroce_conformance::door::serve;
use ferroce_conformance::runner::play_from_environment;

fn main() {
    // As the tests' programs are started for the other side of a connection.
    if std::env::args().any(|word| word == "child_side") {
        serve();
    } else {
        play_from_environment();
    }
}
