//! The laws that hold after every cut.

use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::Value;

use super::client::Seen;
use super::cut::{Cut, Direction, Kind};
use super::exchange::{Framing, Piece, Side, Version};
use super::part::Ending;
use super::reading::{End, Reading};
use super::world::{Arrival, Case, World};

/// One line of the access log.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Record {
    pub(super) path: String,
    #[serde(default)]
    pub(super) outcome: String,
    pub(super) status: Option<u64>,
    /// The failure of the service, where there was one.
    pub(super) cause: Option<String>,
}

/// The story of a case.
pub(super) struct Story<'a> {
    pub(super) world: &'a World,
    pub(super) case: &'a Case,
    pub(super) seen: &'a Seen,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) records: &'a [Record],
}

impl Story<'_> {
    /// Returns the laws that were broken.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = self.case.broken();
        broken.extend(self.response());
        broken.extend(self.success());
        self.arrivals
            .iter()
            .for_each(|arrival| broken.extend(self.request(arrival)));
        broken.extend(self.repetition());
        broken.extend(self.wait());
        broken.extend(self.record());
        broken
    }

    fn expected(&self) -> String {
        let exchange = &self.case.exchange;
        exchange.data(Side::Service, &self.case.mark)
    }

    fn reading(&self) -> &Reading {
        &self.seen.reading
    }

    /// True if a response of the service has begun for the client.
    fn is_of_service(&self) -> bool {
        self.reading()
            .head()
            .is_some_and(|head| !head.values("x-mark").is_empty())
    }

    fn is_whole(&self) -> bool {
        let has_all = || self.reading().data.len() == self.expected().len();
        let is_open_tunnel = self.case.exchange.opens_tunnel() && self.is_of_service();
        self.reading().is_whole() || is_open_tunnel && has_all()
    }

    /// The response is the own one, and whole only if it is.
    fn response(&self) -> Option<String> {
        let reading = self.reading();
        if let Some(End::Malformed(why)) = &reading.end {
            return Some(format!("the client got {why}"));
        }
        let head = reading.head()?;
        if !self.is_of_service() {
            return self.own_response();
        }
        if head.values("x-mark") != [&*self.case.mark] {
            return Some(format!(
                "the client got the response of {:?}",
                head.values("x-mark")
            ));
        }
        let expected = self.expected();
        if !expected.as_bytes().starts_with(&reading.data) {
            return Some(format!(
                "the client got {}",
                other(&reading.data, &expected)
            ));
        }
        let is_short = reading.data.len() < expected.len();
        (self.is_whole() && is_short && !self.may_end_anywhere()).then(|| {
            format!(
                "{} of {} bytes are a whole response",
                reading.data.len(),
                expected.len()
            )
        })
    }

    /// A body up to the end of the connection is whole wherever that is, if it is in order.
    fn may_end_anywhere(&self) -> bool {
        let exchange = &self.case.exchange;
        let until_close = exchange.pieces(Side::Service).any(|piece| {
            matches!(
                piece,
                Piece::Head {
                    framing: Framing::UntilClose,
                    ..
                }
            )
        });
        let in_order = self.case.cuts.iter().any(|cut| {
            cut.direction.side() == Side::Service
                && matches!(cut.kind, Kind::Close | Kind::HalfClose | Kind::Stall)
        });
        // A tunnel has no end that could be missed.
        exchange.opens_tunnel() || until_close && in_order && exchange.service == Version::Http11
    }

    /// A response of the sidecar has an envelope, and the status of a cut.
    fn own_response(&self) -> Option<String> {
        let (reading, head) = (self.reading(), self.reading().head()?);
        if !head.values("grpc-status").is_empty() {
            return None;
        }
        let envelope: Option<Value> = serde_json::from_slice(&reading.data).ok();
        let success = envelope.map(|envelope| envelope["success"].clone());
        let has_envelope = success == Some(Value::Bool(false))
            || self.case.exchange.method() == "HEAD"
            || !reading.is_whole();
        (!has_envelope || ![400, 408, 502, 504].contains(&head.status))
            .then(|| format!("the sidecar responded {} {reading:?}", head.status))
    }

    /// Nothing is lost without a cut that could lose it.
    fn success(&self) -> Option<String> {
        let exchange = &self.case.exchange;
        let by_client = |direction: Direction| direction.side() == Side::Client;
        let harms = |of_client: bool| {
            let mut cuts = self.case.cuts.iter();
            cuts.any(|cut| {
                by_client(cut.direction) == of_client
                    && !cut.kind.is_harmless()
                    && !self.comes_too_late(cut.direction, cut.kind, cut.at)
            })
        };
        let had_response = self.arrivals.iter().any(|arrival| {
            arrival.has_sent_all && arrival.reading.is_whole() && arrival.ending == Ending::Done
        });
        let has_to_succeed = exchange.is_whole() && !harms(true) && (!harms(false) || had_response);
        let is_uncut = self.case.cuts.iter().all(|cut| cut.kind.is_harmless());
        let has_succeeded = self.is_of_service()
            && self.is_whole()
            && (!is_uncut || self.has_all_parts())
            && self
                .reading()
                .head()
                .is_some_and(|head| head.status == exchange.status());
        (has_to_succeed && !has_succeeded)
            .then(|| format!("the response was lost: {:?}", self.reading()))
    }

    /// Returns true if interim responses and trailers have arrived where the version has them.
    fn has_all_parts(&self) -> bool {
        let (exchange, reading) = (&self.case.exchange, self.reading());
        let heads = match exchange.client {
            Version::Http10 => 1,
            _ => exchange.heads(Side::Service).count(),
        };
        let trailers = exchange
            .pieces(Side::Service)
            .any(|piece| matches!(piece, Piece::Trailers(_)));
        let in_http_2 = [exchange.client, exchange.service] == [Version::Http2; 2];
        reading.heads.len() == heads && reading.trailers.is_empty() != (trailers && in_http_2)
    }

    /// Returns true for the end of a connection behind a whole response.
    fn comes_too_late(&self, direction: Direction, kind: Kind, at: usize) -> bool {
        let exchange = &self.case.exchange;
        let names = self.world.names(self.case);
        let length = super::script::script(exchange, Side::Service, names, 0).length();
        let is_ended = match kind {
            // Unread frames would turn the end into a reset.
            Kind::Close => exchange.service == Version::Http11,
            Kind::HalfClose => true,
            _ => false,
        };
        let is_behind = direction == Direction::Response && at >= length;
        let is_read = self
            .arrivals
            .iter()
            .all(|arrival| arrival.reading.is_whole());
        is_behind && is_ended && is_read && !exchange.opens_tunnel()
    }

    /// Each request at the service is the own one, with its user.
    fn request(&self, arrival: &Arrival) -> Option<String> {
        let reading = &arrival.reading;
        if let Some(End::Malformed(why)) = &reading.end {
            return Some(format!("the service got {why}"));
        }
        let expected = self.case.exchange.data(Side::Client, &self.case.mark);
        let is_other = !expected.as_bytes().starts_with(&reading.data);
        let is_short = reading.is_whole() && reading.data.len() < expected.len();
        if is_other || is_short && !self.case.exchange.requests_tunnel() {
            return Some(format!(
                "the service got {}",
                other(&reading.data, &expected)
            ));
        }
        let head = reading.head()?;
        let alike = head.fields.iter().filter(|(name, _)| {
            name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_") == "x_current_user"
        });
        let users: Vec<_> = alike.map(|(_, user)| user).collect();
        let user = self.world.user(self.case);
        let is_right = match &users[..] {
            [user_field] => {
                let value: Option<Value> = serde_json::from_str(user_field).ok();
                value.is_some_and(|value| value["id"] == user)
            }
            _ => false,
        };
        (!is_right).then(|| format!("the service got the users {users:?} in place of {user}"))
    }

    /// A request is carried out once, unless it may be repeated and had no response.
    fn repetition(&self) -> Option<String> {
        let exchange = &self.case.exchange;
        let (_, before) = self.arrivals.split_last()?;
        let carried_out = self
            .arrivals
            .iter()
            .filter(|arrival| arrival.reading.is_whole());
        let carried_out = carried_out.count();
        let may_repeat = before.is_empty() || exchange.may_repeat();
        if carried_out > 1 && !may_repeat {
            return Some(format!(
                "carried out {carried_out} times: {:?}",
                self.arrivals
            ));
        }
        let begun = self.begin_of_response();
        // A reset may destroy what was sent, and so does an end before all is read.
        let is_lost = self.case.cuts.iter().any(|cut| cut.kind == Kind::Reset);
        let responded = before
            .iter()
            .any(|arrival| arrival.sent >= begun && arrival.reading.is_whole());
        let is_misread = matches!(exchange.status(), 400 | 405 | 501 | 505);
        (responded && !is_lost && !is_misread)
            .then(|| "sent again behind the begin of its response".to_owned())
    }

    /// Returns the number of bytes from which on the sidecar knows of a response.
    fn begin_of_response(&self) -> usize {
        let exchange = &self.case.exchange;
        let names = self.world.names(self.case);
        let script = super::script::script(exchange, Side::Service, names, 0);
        let mut end = 0;
        let heads: Vec<_> = exchange.heads(Side::Service).collect();
        let interims = heads
            .iter()
            .filter(|line| line.starts_with('1') && **line != "101")
            .count();
        for (number, step) in script.steps.iter().enumerate() {
            if number == interims {
                return match exchange.service {
                    Version::Http2 => end + step.bytes.len(),
                    _ => end + 1,
                };
            }
            end += step.bytes.len();
        }
        usize::MAX
    }

    fn wait(&self) -> Option<String> {
        let mut endings = self.arrivals.iter().map(|arrival| arrival.ending);
        let is_late = self.seen.ending == Ending::Late || endings.any(|end| end == Ending::Late);
        is_late.then(|| format!("a wait did not end: client {:?}", self.seen.ending))
    }

    /// Returns true for a stream of the service that has broken off, maybe behind all of its data.
    fn may_lack_its_end(&self) -> bool {
        let mut cuts = self.case.cuts.iter();
        let is_cut = |cut: &Cut| cut.direction.side() == Side::Service && !cut.kind.is_harmless();
        self.case.exchange.service == Version::Http2 && cuts.any(is_cut)
    }

    fn cuts_of_client(&self) -> impl Iterator<Item = &Cut> {
        let cuts = self.case.cuts.iter();
        cuts.filter(|cut| cut.direction.side() == Side::Client && !cut.kind.is_harmless())
    }

    /// Returns the number of records that there have to be.
    fn expected_records(&self) -> RangeInclusive<usize> {
        let mut cuts = self.cuts_of_client();
        match self.seen.sent >= self.seen.head {
            false => 0..=0,
            // A reset may come before the head is read, and so does an end with unread frames.
            true if self.case.exchange.client == Version::Http2 && cuts.next().is_some() => 0..=1,
            true if cuts.any(|cut| cut.kind == Kind::Reset) => 0..=1,
            true => 1..=1,
        }
    }

    /// Returns true if a record has not been written, or not yet.
    pub(super) fn lacks_record(&self) -> bool {
        self.records.len() < *self.expected_records().start()
    }

    /// One record, of what the client saw.
    fn record(&self) -> Option<String> {
        let records = self.records;
        if !self.expected_records().contains(&records.len()) {
            return Some(format!("{} records: {records:?}", records.len()));
        }
        let (record, head) = (records.first()?, self.reading().head()?);
        let is_logged =
            record.status == Some(u64::from(head.status)) || !head.values("grpc-status").is_empty();
        let is_right = match (self.is_of_service(), self.is_whole()) {
            // The record is of the tunnel's end.
            (true, true) if self.case.exchange.opens_tunnel() => true,
            // A length may be complete before the stream is.
            (true, true) => record.outcome == "verified" || self.may_lack_its_end(),
            (true, false) => ["rejected", "aborted"].contains(&&*record.outcome),
            (false, _) => record.outcome == "rejected",
        };
        let is_left = self.cuts_of_client().count() > 0;
        (!is_logged || !is_right && !is_left).then(|| {
            format!(
                "the record {record:?} of {} {:?}",
                head.status,
                self.reading().end
            )
        })
    }
}

/// Describes data in place of the expected ones by the begin of both.
fn other(data: &[u8], expected: &str) -> String {
    let begin = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(64)]).into_owned();
    let (lengths, expected) = ([data.len(), expected.len()], begin(expected.as_bytes()));
    format!(
        "{:?} in place of {expected:?}, bytes: {lengths:?}",
        begin(data)
    )
}
