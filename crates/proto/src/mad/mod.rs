//! Management datagrams of the connection manager (class 7) and the RDMA IP CM header.
