//! A completion as a program gets it.

use ferroce_proto::verbs::{Wc, WcFlags, WcImm};

/// A completion as a C program has it in its array (`struct ibv_wc`, `ibv_poll_cq(3)`): in that
/// form it is written once, where the program reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The program's tag.
    pub wr_id: u64,
    /// `enum ibv_wc_status`.
    pub status: u32,
    /// `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// Ferroce's own code for the cause of an error.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data, as on the wire; or the invalidated key, in the order of the host.
    pub imm_data: u32,
    /// Local queue pair.
    pub qp_num: u32,
    /// Sender's queue pair (UD).
    pub src_qp: u32,
    /// `enum ibv_wc_flags`.
    pub wc_flags: u32,
    /// Always 0, the index of the only partition key.
    pub pkey_index: u16,
    /// Always 0: Ethernet has no local identifiers.
    pub slid: u16,
    /// Service level (UD).
    pub sl: u8,
    /// Always 0, as `slid`.
    pub dlid_path_bits: u8,
}

impl From<&Wc> for Entry {
    #[inline]
    fn from(wc: &Wc) -> Self {
        let (imm_data, imm_flag) = match wc.imm {
            None => (0, WcFlags::empty()),
            Some(WcImm::Imm(bytes)) => (u32::from_ne_bytes(bytes), WcFlags::WITH_IMM),
            Some(WcImm::Invalidated(key)) => (key.0, WcFlags::WITH_INV),
        };
        Self {
            wr_id: wc.wr_id,
            status: wc.status as u32,
            opcode: wc.opcode as u32,
            vendor_err: wc.vendor_err,
            byte_len: wc.byte_len,
            imm_data,
            qp_num: wc.qp_num.get(),
            src_qp: wc.src_qp.get(),
            wc_flags: (wc.flags | imm_flag).bits(),
            pkey_index: 0,
            slid: 0,
            sl: wc.sl,
            dlid_path_bits: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_proto::ids::{Key, Qpn};
    use ferroce_proto::verbs::{WcOpcode, WcStatus};

    use super::*;

    fn wc(imm: Option<WcImm>) -> Wc {
        Wc {
            wr_id: 1 << 40,
            status: WcStatus::RemAccessErr,
            opcode: WcOpcode::RecvRdmaWithImm,
            vendor_err: 3,
            byte_len: 4,
            imm,
            qp_num: Qpn::new(5),
            src_qp: Qpn::new(6),
            sl: 7,
            flags: WcFlags::GRH,
        }
    }

    #[test]
    fn each_field_has_its_place() {
        let expected = Entry {
            wr_id: 1 << 40,
            status: 10,
            opcode: 129,
            vendor_err: 3,
            byte_len: 4,
            qp_num: 5,
            src_qp: 6,
            wc_flags: 1,
            sl: 7,
            ..Entry::default()
        };
        assert_eq!(Entry::from(&wc(None)), expected);
    }

    #[test]
    fn immediate_data_and_an_invalidated_key_have_a_flag_each() {
        let imm = Entry::from(&wc(Some(WcImm::Imm([1, 2, 3, 4]))));
        assert_eq!(imm.imm_data.to_ne_bytes(), [1, 2, 3, 4], "as on the wire");
        assert_eq!(imm.wc_flags, 1 | 2);
        let key = Entry::from(&wc(Some(WcImm::Invalidated(Key(0x1234)))));
        assert_eq!((key.imm_data, key.wc_flags), (0x1234, 1 | 8));
    }
}
