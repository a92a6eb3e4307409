//! Tests of the service with several processes played by one.
