//! A name server on a free UDP port of the loopback address, with a table of records; stopped on
//! drop.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// Keeps resolvers from caching a response.
const TTL: u32 = 0;

/// One SRV record of [`DnsServer`]'s service.
#[derive(Debug, Clone)]
pub struct Service {
    /// SRV priority; the lowest goes first.
    pub priority: u16,
    /// SRV weight within one priority.
    pub weight: u16,
    /// Address of the target; its host gets a name of its own.
    pub address: SocketAddr,
}

/// Content of the name server.
#[derive(Debug, Clone)]
pub enum Zone {
    /// SRV records of `_auth._tcp.internal`; `auth.internal` has their addresses, each target its
    /// own.
    Services(Vec<Service>),
    /// SERVFAIL for every query.
    Failing,
}

/// A running name server.
#[derive(Debug)]
pub struct DnsServer {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    zone: Mutex<Zone>,
    questions: AtomicUsize,
    stopped: AtomicBool,
}

impl DnsServer {
    /// Starts the name server.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("its address");
        let state = Arc::new(State {
            zone: Mutex::new(zone),
            questions: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || serve(&socket, &shared));
        Self { address, state }
    }

    /// Returns the value for `--dns-server`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Replaces the content of the name server.
    pub fn set_zone(&self, zone: Zone) {
        *lock(&self.state.zone) = zone;
    }

    /// Returns the number of queries so far.
    pub fn questions(&self) -> usize {
        self.state.questions.load(Ordering::SeqCst)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees the end flag.
        if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _ = socket.send_to(&[], self.address);
        }
    }
}

fn serve(socket: &UdpSocket, state: &State) {
    let mut datagram = [0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut datagram) {
        if state.stopped.load(Ordering::SeqCst) {
            return;
        }
        state.questions.fetch_add(1, Ordering::SeqCst);
        let question = datagram.get(..length).unwrap_or_default();
        let Ok(question) = Message::from_vec(question) else {
            continue;
        };
        let zone = lock(&state.zone).clone();
        if let Ok(reply) = reply(&question, &zone).to_vec() {
            let _ = socket.send_to(&reply, peer);
        }
    }
}

fn reply(question: &Message, zone: &Zone) -> Message {
    let mut reply = Message::new(question.id, MessageType::Response, question.op_code);
    reply.add_queries(question.queries.iter().cloned());
    match zone {
        Zone::Failing => reply.metadata.response_code = ResponseCode::ServFail,
        Zone::Services(services) => {
            let queries = question.queries.iter();
            reply.add_answers(queries.flat_map(|query| records(query, services)));
            if reply.answers.is_empty() {
                reply.metadata.response_code = ResponseCode::NXDomain;
            }
        }
    }
    reply
}

fn records(query: &Query, services: &[Service]) -> Vec<Record> {
    let requested = query.name().to_ascii().to_ascii_lowercase();
    let all = services.iter().enumerate();
    let found = all.filter_map(|(number, service)| {
        let target = format!("host-{number}.internal.");
        let data = match (query.query_type(), requested.as_str()) {
            (RecordType::SRV, "_auth._tcp.internal.") => {
                let port = service.address.port();
                let name = name(&target);
                RData::SRV(SRV::new(service.priority, service.weight, port, name))
            }
            (RecordType::A, "auth.internal.") => RData::A(A(ipv4(service.address))),
            (RecordType::A, host) if host == target => RData::A(A(ipv4(service.address))),
            _ => return None,
        };
        Some(Record::from_rdata(query.name().clone(), TTL, data))
    });
    found.collect()
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a domain name")
}

fn ipv4(address: SocketAddr) -> Ipv4Addr {
    match address {
        SocketAddr::V4(address) => *address.ip(),
        SocketAddr::V6(address) => panic!("{address} has no A record"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
