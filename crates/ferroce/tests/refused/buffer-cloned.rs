//! A buffer has one owner.
use ferroce::Buffer;

pub fn case(buffer: Buffer) -> Buffer {
    let second = buffer.clone(); //~ E0599
    buffer
}
