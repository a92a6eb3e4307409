//! Tests of the conversations as pairs over a virtual clock and a faulty link.
