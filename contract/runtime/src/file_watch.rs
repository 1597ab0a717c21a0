//! When files that may have changed are looked at – every two seconds, and at SIGHUP –, and which looks are
//! worth a line.

use std::fmt::Display;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::signals::HangUps;

/// Soon enough for somebody who waits for it, and next to no work.
const INTERVAL: Duration = Duration::from_secs(2);

/// What a look is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It is time again.
    Interval,
    /// Somebody sent SIGHUP.
    HangUp,
}

/// One look after the other.
#[derive(Debug)]
pub struct Looks(HangUps);

impl Looks {
    /// # Errors
    /// Where SIGHUP cannot be received.
    pub fn begin() -> std::io::Result<Self> {
        HangUps::install().map(Self)
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Occasion {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => Occasion::Interval,
            () = self.0.next() => Occasion::HangUp,
        }
    }
}

/// What `look` brings, on a thread where waiting for files holds up nobody.
///
/// # Errors
/// Why it brought nothing, in words.
pub async fn aside<T, E>(look: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, String>
where
    T: Send + 'static,
    E: Display + Send + 'static,
{
    match spawn_blocking(look).await {
        Ok(looked) => looked.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// What a look brought that was not told before.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// What the files hold now is used from now on.
    Replaced,
    /// Files that could not be used are as before again.
    Recovered,
    /// They cannot be used, and this is why.
    Unusable(String),
}

/// Remembers what was told: files that cannot be used are one line, and not one for each look.
#[derive(Debug, Default)]
pub struct Told(Option<String>);

impl Told {
    /// `looked` says whether something was replaced, or why the files cannot be used.
    pub fn news(&mut self, looked: Result<bool, String>) -> Option<News> {
        let failure = match looked {
            Ok(replaced) => {
                let recovered = self.0.take().is_some();
                let news = if replaced {
                    News::Replaced
                } else {
                    News::Recovered
                };
                return (replaced || recovered).then_some(news);
            }
            Err(failure) => failure,
        };
        let is_known = self.0.as_ref() == Some(&failure);
        self.0 = Some(failure.clone());
        (!is_known).then_some(News::Unusable(failure))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::signals::tests::send;

    #[tokio::test]
    async fn a_hang_up_is_a_look_of_its_own() {
        let mut looks = Looks::begin().unwrap();
        send("HUP");
        let hang_up = async { while looks.next().await != Occasion::HangUp {} };
        let told = tokio::time::timeout(Duration::from_secs(30), hang_up).await;
        assert!(told.is_ok(), "the signal was lost");
    }

    #[test]
    fn each_failure_is_told_once_until_another_one_or_an_end_of_it() {
        let mut told = Told::default();
        let failed = |why: &str| Err(why.to_owned());
        let unusable = |why: &str| Some(News::Unusable(why.to_owned()));
        for (looked, news) in [
            (Ok(false), None),
            (Ok(true), Some(News::Replaced)),
            (failed("a"), unusable("a")),
            (failed("a"), None),
            (failed("b"), unusable("b")),
            (Ok(false), Some(News::Recovered)),
            (Ok(false), None),
            (failed("b"), unusable("b")),
            (Ok(true), Some(News::Replaced)),
            (Ok(false), None),
        ] {
            let now = format!("{looked:?}");
            assert_eq!(told.news(looked), news, "{now}");
        }
    }
}
