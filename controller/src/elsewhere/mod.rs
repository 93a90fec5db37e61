//! Workers elsewhere: the messages of their routes (decision D33).

pub mod messages;
