//! What all tests of the interface share.

#[allow(dead_code, reason = "not every test program needs all of it")]
pub(crate) mod bare;
#[cfg(feature = "software")]
#[allow(dead_code, reason = "not every test program needs all of it")]
pub(crate) mod c;
#[allow(dead_code, reason = "not every test program needs all of it")]
pub(crate) mod door;
#[allow(dead_code, reason = "not every test program needs all of it")]
pub(crate) mod pair;
#[allow(dead_code, reason = "not every test program needs all of it")]
pub(crate) mod told;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ferroce::Provider;

/// Long past what anything in a test takes.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The provider that is tested: the software device, or with `FERROCE_TEST_PROVIDER=system` the
/// libraries that the loader finds, which the system tests point at the drop-in library or at
/// genuine ones.
pub(crate) fn provider() -> Provider {
    match std::env::var("FERROCE_TEST_PROVIDER").as_deref() {
        #[cfg(feature = "software")]
        Err(_) | Ok("software") => Provider::software(),
        Ok("system") => Provider::system().expect("the system's libraries load"),
        other => panic!("FERROCE_TEST_PROVIDER is `software` or `system`, not {other:?}"),
    }
}

/// Where the tests meet themselves: the loopback, or `FERROCE_TEST_ADDRESS` where that has no
/// device.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn address() -> IpAddr {
    let told = std::env::var("FERROCE_TEST_ADDRESS");
    told.map_or_else(
        |_| Ipv4Addr::LOCALHOST.into(),
        |told| told.parse().expect("FERROCE_TEST_ADDRESS"),
    )
}

/// Whether the device is the kernel's rxe (`FERROCE_TEST_DEVICE=rxe`), which refuses some things.
/// What it does then is tested instead.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn on_rxe() -> bool {
    std::env::var_os("FERROCE_TEST_DEVICE").is_some_and(|device| device == "rxe")
}

/// How many random programs or seeds: `FERROCE_SEEDS` says it for long runs, and for those under a
/// slow checker.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn seeds(otherwise: u32) -> u32 {
    let told = std::env::var("FERROCE_SEEDS");
    told.map_or(otherwise, |told| told.parse().expect("FERROCE_SEEDS"))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future in this thread.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return out;
        }
        assert!(begun.elapsed() < DEADLINE, "a future was never woken");
        thread::park_timeout(DEADLINE);
    }
}

/// Waits for a future in this thread, which also does what brings the completions.
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn block_on_driving<F: Future>(future: F, mut turn: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        if let Poll::Ready(out) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return out;
        }
        assert!(begun.elapsed() < DEADLINE, "a future was never ready");
        turn();
    }
}
