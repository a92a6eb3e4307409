//! The guarded accesses of x86-64.

use libc::{c_int, ucontext_t};

use super::{Unmapped, copy, outcome};

// No function here has a stack frame, so a fault anywhere can go on at `ferroce_guarded_fault`.
std::arch::global_asm!(
    ".p2align 5",
    ".hidden ferroce_guarded_begin",
    ".globl ferroce_guarded_begin",
    "ferroce_guarded_begin:",
    ".hidden ferroce_guarded_copy",
    ".globl ferroce_guarded_copy",
    "ferroce_guarded_copy:",
    // A word is what most short messages are.
    "cmp rdx, 8",
    "je 9f",
    "cmp rdx, 64",
    "jb 3f",
    "2: movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "jae 2b",
    "3: cmp rdx, 16",
    "jb 4f",
    "8: movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "sub rdx, 16",
    "cmp rdx, 16",
    "jae 8b",
    "4: cmp rdx, 8",
    "jb 5f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "5: test rdx, rdx",
    "jz 7f",
    "6: mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jnz 6b",
    "7: xor eax, eax",
    "ret",
    "9: mov rax, [rsi]",
    "mov [rdi], rax",
    "xor eax, eax",
    "ret",
    ".hidden ferroce_guarded_move",
    ".globl ferroce_guarded_move",
    "ferroce_guarded_move:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    ".hidden ferroce_guarded_compare_swap",
    ".globl ferroce_guarded_compare_swap",
    "ferroce_guarded_compare_swap:",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "mov [rcx], rax",
    "xor eax, eax",
    "ret",
    ".hidden ferroce_guarded_fetch_add",
    ".globl ferroce_guarded_fetch_add",
    "ferroce_guarded_fetch_add:",
    "lock xadd [rdi], rsi",
    "mov [rdx], rsi",
    "xor eax, eax",
    "ret",
    ".hidden ferroce_guarded_fault",
    ".globl ferroce_guarded_fault",
    "ferroce_guarded_fault:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    fn ferroce_guarded_move(to: *mut u8, from: *const u8, len: usize) -> c_int;
}

/// Bytes from which on a string move is faster: it takes whole lines from other processors
/// without reading what it is about to overwrite.
const STRING_MOVE: usize = 1024;

/// Copies `len` bytes, in any order.
///
/// # Safety
/// As [`copy`].
#[inline]
pub(in super::super) unsafe fn copy_unordered(
    to: *mut u8,
    from: *const u8,
    len: usize,
) -> Result<(), Unmapped> {
    if len < STRING_MOVE || !std::arch::is_x86_feature_detected!("ermsb") {
        // SAFETY: the caller's promise.
        return unsafe { copy(to, from, len) };
    }
    // SAFETY: the caller's promise; a fault in registered memory comes back as 1.
    outcome(unsafe { ferroce_guarded_move(to, from, len) }, ())
}

/// The address of the instruction that a signal has interrupted.
pub(super) fn place(context: &ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned()
}

/// Goes on elsewhere after the handler.
pub(super) fn go_on_at(context: &mut ucontext_t, place: u64) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = place.cast_signed();
}
