//! Tests of the queue pair by packets, as values: two of them, a network that obeys, a clock that waits.
mod direct;
mod ends;
mod forged;
mod harness;
mod lifecycle;
mod long;
mod loss;
mod requester_hostile;
mod responder_atomic;
mod responder_hostile;
mod responder_read;
mod responder_send;
mod responder_unreliable;
mod responder_world;
mod responder_write;
mod transfer;
