//! The order of locks, outermost first. A thread takes a lock only if its line stands below the
//! lines of all locks which the thread holds.
//!
//! Each mutex and each reader-writer lock of the device, and of `adverb-ucma` and `adverb-hunt`
//! above it, has a line here, and names the line in its type. Debug builds check the order at every
//! lock call that may wait, and panic with both names. A `try_lock` never waits. Debug builds check
//! a `try_lock` only for the locks taken after it. A thread never holds two locks of one line at
//! once: never two queue pairs, and never the same lock for reading twice.
//!
//! A line says what the lock guards and what the holder does under the lock. "Nothing more" means:
//! the holder takes no other lock of this table. A logger may be called under any of these locks,
//! so a logger must not call the device. The locks of `adverb-link`, `adverb-local` and
//! `adverb-memory` are not in the table. `UdpLink::recv` holds such a lock while it calls the
//! device: a socket's `receiving`. A thread only tries this lock, or waits for it with a limit.
adverb_sync::ranks! {
    // The first locks of calls by the program.

    /// The slot for the process's connection manager (`adverb_ucma`): held while the connection
    /// manager is made, which makes the node.
    UcmaInstance = "the process's connection manager";
    /// The ids, connections and files of the connection manager: held through each command and each
    /// MAD. Commands and MADs send MADs and open addresses.
    UcmaWorld = "the connection manager's ids";
    /// The connection manager's files by descriptor. Nothing more.
    UcmaFiles = "the connection manager's files";
    /// The turn of the process's node: held while the node is made, and at the end of the process,
    /// when the node sends its waiting packets.
    NodeInstance = "the process's node";
    /// Whether a claim of a service listens: held while the service is listed.
    MadClaim = "a claim of a service";
    /// The services that this process listens for. Nothing more.
    MadServices = "the services that are listened for";
    /// Requests that arrived before the process listened. Nothing more.
    MadEarly = "requests that arrived early";
    /// The state of a work queue: held while its queue pair is modified.
    WorkQueue = "a work queue";
    /// The multicast groups of a queue pair: held while the queue pair joins or leaves a group,
    /// which opens addresses.
    Attachments = "a queue pair's multicast groups";
    /// A memory region's range, rights and protection domain: held while the region ends or is
    /// registered anew. Queue pairs resend payloads of the region meanwhile.
    MemoryRegion = "a memory region";

    // Arriving packets.

    /// The turn for a handshake: held until the other process answers. The answer is received
    /// meanwhile.
    Handshaking = "the turn for a handshake";
    /// The state of receiving (`Node::receiver`): the buffers of sockets and the rings of peers.
    /// All consequences of a packet happen under this lock.
    Receiver = "the receiver";
    /// Resources given to processes that have not answered a handshake message: held while a peer
    /// is entered.
    Unanswered = "the processes that have not answered a handshake";

    /// The turn of an adversary to repeat READs: held while the READs are repeated, and while their
    /// completions are added to a queue.
    AdversaryTurn = "the turn to repeat READs";

    // A queue pair, and the locks that its engine needs.

    /// A queue pair: the engine, and the position in its packets. `engine::Qp` is called under this
    /// lock, and no lock of an SRQ or CQ is held then.
    QueuePair = "a queue pair";
    /// Packets of ended queue pairs for other processes. Nothing more.
    Leaving = "what ended queue pairs left to send";
    /// The key and the pages of a fast region: held while the key table stages or frees them.
    FastRegion = "a fast memory region";
    /// The ring to a peer. A queue pair only tries this lock and never waits, so the lock may be
    /// tried while the keys are held. Only replacing or searching a ring waits for the lock. A
    /// record that binds a key writes the key table under it.
    TxRing = "the ring to a peer";
    /// The key table. Readers copy payloads under this lock, so that a deregistration waits for
    /// them. Short one-sided requests copy behind a hazard instead (`host::one_sided`).
    Keys = "the keys";
    /// Payloads of records in a peer's ring that point at memory. Nothing more.
    Referred = "the payloads that a peer has to fetch";
    /// The turn to change the published state of queue pairs and keys. Nothing more.
    Publishing = "the turn to publish";
    /// The shared receive queues by number: held while a queue is made. Nothing more.
    SharedQueues = "the shared receive queues by number";
    /// A shared receive queue. Operations on tags are completed under it.
    SharedReceives = "a shared receive queue";

    // Completions and events.

    /// Acknowledgements of an object's events. A thread that destroys the object waits under this
    /// lock, and logs the reason of the wait.
    Acknowledgements = "the acknowledgements of an object's events";
    /// Completions that an adversary holds back: held while they are added to their queue.
    AdversaryQueue = "the completions that an adversary holds";
    /// A completion queue. Under this lock the event is queued and the timer is entered. Wakers are
    /// called, which only note their task. The function that takes completions out (`Cq::poll`)
    /// calls no code of the device, and drops no object of the device.
    CompletionQueue = "a completion queue";
    /// Events with a descriptor: the events of a channel, and the asynchronous events. Nothing
    /// more.
    Events = "a list of events";
    /// Tasks that wait for an event. Nothing more: wakers are called after the lock is released.
    Wakers = "the tasks that wait for an event";
    /// The queues of a completion channel. Nothing more.
    ChannelQueues = "a channel's completion queues";
    /// Threads that wait for an event of a completion channel. Nothing more.
    Getting = "the threads that wait at a channel";

    // Peers on this host. No lock of this section is held while a ring is locked or a packet
    // handled.

    /// How many threads sleep until a doorbell rings: held while the doorbells are looked at.
    Sleepers = "the threads that wait for a doorbell";
    /// Peers that were left although their processes live on. An ended peer is removed under this
    /// lock.
    Departed = "the peers that were left";
    /// The peers: held while a peer enters or leaves, and while the receiver takes over their
    /// rings.
    Peers = "the peers";
    /// The peers by slot. Nothing more.
    PeersBySlot = "the peers by slot";
    /// The rings of a peer that the receiver still has to take over. Nothing more.
    PeerRings = "the rings that a peer writes to";
    /// The doorbells of a peer, or the end (descriptor) of a peer that was left. Nothing more.
    PeerLinks = "a peer's doorbells";
    /// Memory of a peer that is mapped here. Nothing more.
    PeerMemory = "a peer's memory";
    /// The queue pairs that were connected to a peer. Nothing more.
    PeerQueuePairs = "the queue pairs connected to a peer";

    // Tables: taken under any of the above locks. No code is called under them.

    /// Registered memory in the process's file.
    Reached = "the memory that peers may map";
    /// Processes that get no handshake message of this process for a while.
    Refused = "the processes that did not answer";
    /// The queue pairs by number.
    Numbers = "the queue pairs by number";
    /// Queue pairs to pump at the next poll.
    Pending = "the queue pairs that wait for a poll";
    /// Queue pairs with packets that wait for a receive.
    PendingReceives = "the queue pairs whose packets wait for a receive";
    /// The multicast groups of the process, with the queue pairs attached.
    Groups = "the multicast groups";
    /// The interfaces with raw packet queue pairs: held while one is opened.
    FramePorts = "the interfaces with raw packet queue pairs";
    /// The flows of an interface.
    Flows = "the flows of an interface";
    /// The key of a memory window.
    MemoryWindow = "a memory window";
    /// The handler of MADs. The handler is called after the lock is released.
    MadHandler = "the handler of MADs";
    /// The addresses opened so far.
    Addresses = "the open addresses";
    /// The followed interfaces: held while each port reads its interface.
    KnownPorts = "the ports that are followed";
    /// The state of a port.
    Port = "a port";
    /// Contexts to inform of changes of ports. They are called after the lock is released.
    Followers = "the followers of ports";
    /// MADs that wait for the background thread.
    MadInbox = "the MADs that arrived";
    /// Processes that ended, for the handler of MADs.
    MadEnded = "the processes that ended";
    /// When a MAD was last given to all processes.
    MadSpread = "the pace of MADs to all";
    /// Completion queues with timers, by number.
    TimedQueues = "the completion queues with timers";
    /// Queue pairs with one-sided requests that a fault delays.
    Delayed = "the queue pairs whose requests are delayed";
    /// The objects of the process, for other processes. The objects are asked after the lock is
    /// released. Nothing more.
    ObjectList = "the list of objects";
    /// Deadlines.
    Timers = "the timers";
    /// Outages on request. Nothing more.
    Outages = "the outages on request";
    /// Counters of ended queue pairs.
    EndedCounters = "the counters of ended queue pairs";
    /// How often peers were not reached through shared memory, by reason.
    Private = "the counters of private memory";

    /// Pipes made in advance. This lock is only tried. Nothing more.
    SparePipes = "the pipes made in advance";
    /// The pipes of channels. This lock is only tried, or waited for with a
    /// limit. Nothing more.
    ChannelPipes = "the pipes of channels";

    /// The tables of an adversary (`adverb-hunt`), one at a time: its schedule, its queues, staged
    /// requests and late queue pairs.
    AdversaryNotes = "the notes of an adversary";
}
