//! A descriptor is lent by an object that is there.
use std::os::fd::AsFd;

use ferroce::Driver;
use ferroce::cm::EventChannel;
use ferroce::cq::CompletionQueue;

pub fn queue(queue: CompletionQueue) {
    let fd = queue.as_fd();
    drop(queue); //~ E0505
    println!("{fd:?}");
}

pub fn channel(channel: EventChannel) {
    let fd = channel.as_fd();
    drop(channel); //~ E0505
    println!("{fd:?}");
}

pub fn driver(driver: Driver) {
    let fd = driver.as_fd();
    driver.run_blocking(std::time::Duration::ZERO, || true).unwrap(); //~ E0505
    println!("{fd:?}");
}
