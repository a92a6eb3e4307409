//! Memory that peers write is copied; no reference to its bytes exists.
use ferroce::mem::MemoryRegion;

pub fn copied(region: &MemoryRegion) -> [u8; 8] {
    let mut out = [0; 8];
    let bytes: &[u8] = &region; //~ E0308
    let bytes: &[u8] = region.as_ref(); //~ E0599
    let bytes = &region[..]; //~ E0608
    region.read(0, &mut out).unwrap();
    out
}

pub fn changed(region: &mut MemoryRegion) {
    let bytes: &mut [u8] = region; //~ E0308
    let bytes: &mut [u8] = region.as_mut(); //~ E0599
    region.write(0, b"copied").unwrap();
}
