//! What programs under `ferroce run` see of the software devices below `/sys` and `/dev`.
//!
//! ```
//! let names = ferroce::sysfs::names();
//! assert!(names.iter().any(|(path, _)| path == "/sys/class/infiniband"));
//! ```

pub use ferroce_abi::sysfs::{Name, names};
