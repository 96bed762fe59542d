//! Tests of the queue pair by packets, as values: two of them, a network that obeys, a clock that waits.
mod ends;
mod harness;
mod lifecycle;
mod loss;
mod transfer;
