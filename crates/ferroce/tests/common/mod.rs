//! What all tests of the interface share.

pub(crate) mod pair;

use ferroce::Provider;

/// The provider that is tested: the software device, or with `FERROCE_TEST_PROVIDER=system` the libraries that the loader finds,
/// which the system tests point at the drop-in library or at genuine ones.
pub(crate) fn provider() -> Provider {
    match std::env::var("FERROCE_TEST_PROVIDER").as_deref() {
        Err(_) | Ok("software") => Provider::software(),
        Ok("system") => Provider::system().expect("the system's libraries load"),
        Ok(other) => panic!("FERROCE_TEST_PROVIDER is `software` or `system`, not `{other}`"),
    }
}
