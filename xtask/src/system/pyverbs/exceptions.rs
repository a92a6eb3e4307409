//! Tests of the suite that a RoCE device in software skips, and why that is right.

/// Skipped tests of modules whose names start in a way, with texts that they are skipped with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exception {
    /// Start of the module's name.
    pub(super) module: &'static str,
    /// What they have in common, for the document.
    pub(super) what: &'static str,
    /// Parts of the suite's own words, any of them.
    pub(super) says: &'static [&'static str],
    /// Why.
    pub(super) reason: &'static str,
    /// Whether another machine may well run the test.
    pub(super) depends_on_machine: bool,
}

const fn exception(
    module: &'static str,
    what: &'static str,
    says: &'static [&'static str],
    reason: &'static str,
) -> Exception {
    Exception {
        module,
        what,
        says,
        reason,
        depends_on_machine: false,
    }
}

const fn of_machine(
    what: &'static str,
    says: &'static [&'static str],
    reason: &'static str,
) -> Exception {
    Exception {
        module: "test_",
        what,
        says,
        reason,
        depends_on_machine: true,
    }
}

/// What the suite says where a raw Ethernet queue pair is needed: to an ordinary user, and to root.
const RAW: &[&str] = &[
    "Must be run by root on Ethernet",
    "To Create RAW QP must be done by root",
    "Create QP type 8 is not supported",
    "Create Raw Packet QP",
];

/// All of them.
pub(super) const ALL: &[Exception] = &[
    exception(
        "test_mlx5",
        "`test_mlx5_*`",
        &[
            "non MLX5 device",
            "Could not open mlx5 context",
            "PCI device must be passed",
            "Converting timestamp to nanoseconds",
            "Must be run by root on Ethernet",
            "Create QP type 8 is not supported",
            "cuda-python",
            "FDs file not found",
        ],
        "calls of one vendor's cards (mlx5dv(7)), some with a PCI card handed over by VFIO or with a GPU",
    ),
    exception(
        "test_efa",
        "`test_efa*`",
        &["non EFA device"],
        "calls of one vendor's cards (efadv(7))",
    ),
    exception(
        "test_cuda",
        "`test_cuda_*`",
        &["cuda-python"],
        "needs a GPU and its vendor's library",
    ),
    exception(
        "test_flow",
        "Flow steering",
        RAW,
        "steers Ethernet frames to raw packet queue pairs (ibv_create_flow(3)), which RoCEv2, an InfiniBand transport in UDP \
         (IBTA annex A17), has no part for",
    ),
    exception(
        "test_rss",
        "Receive side scaling",
        RAW,
        "spreads Ethernet frames over work queues (ibv_create_rwq_ind_table(3)); as above",
    ),
    exception(
        "test_qp",
        "Raw packet queue pairs",
        RAW,
        "IBV_QPT_RAW_PACKET sends Ethernet frames as they are (ibv_create_qp_ex(3)); as above",
    ),
    exception(
        "test_tag_matching",
        "Tag matching",
        &["Tag matching is not supported"],
        "an offload that a device without it reports by tm_caps of 0 (ibv_query_device_ex(3)); its rendezvous protocol is no \
         part of the InfiniBand specification",
    ),
    of_machine(
        "Buffers of a GPU",
        &[
            "Allocating dmabuf is not supported by /dev/dri",
            "Device /dev/dri/renderD128 is not present",
        ],
        "the suite takes its dmabufs from a GPU's render node alone",
    ),
    of_machine(
        "Huge pages",
        &["There are no huge pages"],
        "the machine has none set aside (vm.nr_hugepages)",
    ),
];

/// Those of releases behind the one that this machine has.
pub(super) const NEWER: &[Exception] = &[
    exception(
        "test_buf",
        "Buffers of a confidential guest",
        &["Device does not report CC_DMA_BOUNCE"],
        "memory that an adapter can reach in a guest with encrypted memory: a device in software reaches all",
    ),
    exception(
        "test_mr",
        "dmabufs of device memory",
        &["DM dmabuf export is not supported"],
        "an adapter's memory as a file for other devices (ibv_dm_export_dmabuf_fd(3)); the memory is in no device here",
    ),
    exception(
        "test_phc",
        "Clocks of a network adapter",
        &["No PHC or failed to open"],
        "the clock is a device of its own, /dev/ptp0, which an interface without hardware lacks",
    ),
];
