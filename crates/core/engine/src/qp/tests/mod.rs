//! Packet tests of the queue pair, as values: two queue pairs, a network and a clock under control
//! of the test.
mod answers;
mod congestion;
mod ends;
mod forged;
mod frames;
mod harness;
mod host_post;
mod host_request;
mod lifecycle;
mod long;
mod loss;
mod recovery;
mod reorder;
mod requester_hostile;
mod responder_atomic;
mod responder_hostile;
mod responder_read;
mod responder_send;
mod responder_unreliable;
mod responder_world;
mod responder_write;
mod response_order;
mod retries;
mod straight;
mod transfer;
