//! Where verbs come from.

use ferroce::{Error, Provider, ProviderKind};

#[test]
fn the_software_device_needs_nothing() {
    let provider = Provider::software();
    assert_eq!(provider.kind(), ProviderKind::Software);
    let names: Vec<_> = provider
        .devices()
        .unwrap()
        .iter()
        .map(|d| d.name())
        .collect();
    assert!(names.contains(&"ferroce_lo".to_owned()), "{names:?}");
}

#[test]
fn auto_prefers_a_system_with_devices_and_says_why() {
    let auto = Provider::auto();
    assert!(!auto.devices().unwrap().is_empty(), "{auto:?}");
    match Provider::system().and_then(|system| Ok(system.devices()?.len())) {
        Ok(count) if count > 0 => assert_eq!(auto.kind(), ProviderKind::System),
        Ok(_) => assert_eq!(auto.why(), "the system's libibverbs has no device"),
        Err(e) => assert!(auto.why().contains(&e.to_string()), "{auto:?}: {e}"),
    }
}

/// What is said of a library that is missing, `sys::system` tests: here it may be there.
#[test]
fn a_system_is_there_or_lacks_a_library() {
    if let Err(e) = Provider::system() {
        let Error::NoSystemLibrary { library, .. } = &e else {
            panic!("{e:?}");
        };
        assert!(
            ["libibverbs.so.1", "librdmacm.so.1"].contains(library),
            "{e}"
        );
    }
}
