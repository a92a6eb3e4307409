//! What a scope works on lives longer than the scope.
use std::time::Duration;

use ferroce::mem::ProtectionDomain;

pub fn case(domain: &ProtectionDomain) {
    let mut before = [0; 8];
    domain.scope(Duration::ZERO, |scope| {
        let mut inside = [0; 8];
        scope.register_mut(&mut inside).unwrap(); //~ E0597
        scope.register_mut(&mut before).unwrap();
    });
}
