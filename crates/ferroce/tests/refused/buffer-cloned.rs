//! A buffer has one owner.
use ferroce::mem::Buffer;

pub fn case(buffer: Buffer) -> Buffer {
    let second = buffer.clone(); //~ E0599
    buffer
}
