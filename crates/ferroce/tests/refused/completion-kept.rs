//! A completion that is read in place is lent until the next is asked for.
use ferroce::cq::CompletionQueue;

pub fn next(queue: &CompletionQueue) {
    let mut completions = queue.completions();
    let first = completions.next().unwrap();
    let second = completions.next().unwrap(); //~ E0499
    println!("{first:?}");
}

pub fn queue(queue: CompletionQueue) {
    let mut completions = queue.completions();
    drop(queue); //~ E0505
    completions.next().unwrap();
}
