//! What a scope works on lives longer than the scope.
use std::time::Duration;

use ferroce::ProtectionDomain;

pub fn case(domain: &ProtectionDomain) {
    let mut before = [0; 8];
    domain.scope(Duration::ZERO, |scope| {
        let mut inside = [0; 8];
        scope.lend(&mut inside).unwrap(); //~ E0597
        scope.lend(&mut before).unwrap();
    });
}
