//! The C types of `infiniband/verbs.h`: same names, same layouts (a test compares them with the
//! installed header).
//!
//! Enumerations are plain integers: a C program can put any number there.

mod ah;
mod constants;
mod cq;
mod device;
mod memory;
mod newer;
mod qp;
mod srq;
mod wr;

pub use ah::*;
pub use constants::*;
pub use cq::*;
pub use device::*;
pub use memory::*;
pub use newer::*;
pub use qp::*;
pub use srq::*;
pub use wr::*;

use crate::layout::{Constant, StructLayout};

/// Layouts of all structures of this module.
#[must_use]
pub fn layouts() -> Vec<StructLayout> {
    [
        AH_LAYOUTS,
        CQ_LAYOUTS,
        ASYNC_LAYOUTS,
        DEVICE_LAYOUTS,
        MEMORY_LAYOUTS,
        QP_LAYOUTS,
        SRQ_LAYOUTS,
        WR_LAYOUTS,
    ]
    .concat()
}

/// Values of all constants of this module.
#[must_use]
pub fn constants() -> Vec<Constant> {
    tables().concat()
}
