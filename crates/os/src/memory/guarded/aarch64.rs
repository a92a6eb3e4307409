//! The guarded accesses of aarch64.

use libc::ucontext_t;

pub(in super::super) use super::copy as copy_unordered;

// No function here has a stack frame, so a fault anywhere can go on at `ferroce_guarded_fault`.
// The atomics are those of every processor, of which the first ones lack the newer instructions,
// and order all that is before them and behind them, as those of x86-64 do.
std::arch::global_asm!(
    ".p2align 5",
    ".hidden ferroce_guarded_begin",
    ".globl ferroce_guarded_begin",
    "ferroce_guarded_begin:",
    ".hidden ferroce_guarded_copy",
    ".globl ferroce_guarded_copy",
    "ferroce_guarded_copy:",
    "cmp x2, #64",
    "b.lo 3f",
    "2: ldp q0, q1, [x1]",
    "ldp q2, q3, [x1, #32]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "add x1, x1, #64",
    "add x0, x0, #64",
    "sub x2, x2, #64",
    "cmp x2, #64",
    "b.hs 2b",
    "3: cmp x2, #8",
    "b.lo 5f",
    "4: ldr x3, [x1], #8",
    "str x3, [x0], #8",
    "sub x2, x2, #8",
    "cmp x2, #8",
    "b.hs 4b",
    "5: cbz x2, 7f",
    "6: ldrb w3, [x1], #1",
    "strb w3, [x0], #1",
    "sub x2, x2, #1",
    "cbnz x2, 6b",
    "7: mov w0, #0",
    "ret",
    ".hidden ferroce_guarded_compare_swap",
    ".globl ferroce_guarded_compare_swap",
    "ferroce_guarded_compare_swap:",
    "dmb ish",
    "2: ldxr x4, [x0]",
    "cmp x4, x1",
    "b.ne 3f",
    "stxr w5, x2, [x0]",
    "cbnz w5, 2b",
    "3: dmb ish",
    "str x4, [x3]",
    "mov w0, #0",
    "ret",
    ".hidden ferroce_guarded_fetch_add",
    ".globl ferroce_guarded_fetch_add",
    "ferroce_guarded_fetch_add:",
    "dmb ish",
    "2: ldxr x3, [x0]",
    "add x4, x3, x1",
    "stxr w5, x4, [x0]",
    "cbnz w5, 2b",
    "dmb ish",
    "str x3, [x2]",
    "mov w0, #0",
    "ret",
    ".hidden ferroce_guarded_fault",
    ".globl ferroce_guarded_fault",
    "ferroce_guarded_fault:",
    "mov w0, #1",
    "ret",
);

/// The address of the instruction that a signal has interrupted.
pub(super) fn place(context: &ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Goes on elsewhere after the handler.
pub(super) fn go_on_at(context: &mut ucontext_t, place: u64) {
    context.uc_mcontext.pc = place;
}
