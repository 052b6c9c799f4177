//! The tables by which requests are routed. They are built when the configuration changes and only read by a request.

use std::sync::Arc;

use super::Request;
use crate::actors::pattern::Pattern;
use crate::actors::random::Random;

/// `pathType`, as far as the data plane tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathType {
    Exact,
    Prefix,
}

/// One path of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub path: String,
    pub kind: PathType,
    /// The number of what serves it; None is the default backend, which answers 404.
    pub target: Option<u32>,
    /// A number for all else of it that is in the configuration file.
    pub settings: u64,
}

impl Place {
    fn fits(&self, path: &str) -> bool {
        match self.kind {
            PathType::Exact => path == self.path,
            PathType::Prefix => {
                let rest = path.strip_prefix(self.path.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

/// Hosts with their paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locations {
    /// Longest path first, and of the same path the exact one.
    pub hosts: Vec<(String, Vec<Place>)>,
}

impl Locations {
    /// Puts the paths of each host into the order in which they are tried.
    pub fn sort(&mut self) {
        for (_, places) in &mut self.hosts {
            places.sort_by_key(|place| (usize::MAX - place.path.len(), place.kind != PathType::Exact));
        }
    }

    /// The paths of a host: its own ones, or those of a wildcard, or those of all other hosts.
    pub fn host(&self, host: &str) -> Option<&[Place]> {
        let wild = |name: &str| {
            let rest = name.strip_prefix('*').and_then(|end| host.strip_suffix(end));
            rest.is_some_and(|rest| !rest.is_empty())
        };
        let found = self.hosts.iter().find(|(name, _)| name == host);
        let found = found.or_else(|| self.hosts.iter().find(|(name, _)| wild(name)));
        let found = found.or_else(|| self.hosts.iter().find(|(name, _)| name == "_"));
        found.map(|(_, places)| places.as_slice())
    }

    /// What serves `path` on `host`. None if the default backend does.
    pub fn find(&self, host: &str, path: &str) -> Option<u32> {
        self.host(host)?.iter().find(|place| place.fits(path))?.target
    }
}

/// A Service's port and who stands behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    pub service: Arc<str>,
    pub pods: Vec<Arc<str>>,
    /// The number of the upstream that a part of its traffic goes to.
    pub alternative: Option<u32>,
    /// Which part it gets itself, if it is such an alternative.
    pub shaping: Shaping,
}

/// Which requests go to a canary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shaping {
    pub weight: i64,
    pub total: i64,
    pub header: Option<HeaderRule>,
    pub cookie: Option<String>,
}

/// A rule on one header.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderRule {
    /// In lower case with `_` for `-`, as nginx' `$http_…` has it.
    pub name: String,
    pub test: HeaderTest,
}

/// What a header is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderTest {
    Value(String),
    /// None if it cannot be compiled.
    Pattern(Option<Pattern>),
    /// `always` and `never`.
    Words,
}

fn word(text: &str) -> Option<bool> {
    match text {
        "always" => Some(true),
        "never" => Some(false),
        _ => None,
    }
}

fn is_header(name: &str, normalized: &str) -> bool {
    let normal = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    name.len() == normalized.len() && name.bytes().map(normal).eq(normalized.bytes())
}

impl Shaping {
    /// Whether the header or the cookie of a request decides: the header first, then the cookie (balancer.lua).
    pub fn by_request(&self, request: &Request<'_>) -> Option<bool> {
        if let Some(rule) = &self.header
            && let Some((_, value)) = request.headers.iter().find(|(name, _)| is_header(name, &rule.name))
        {
            match &rule.test {
                HeaderTest::Value(wanted) if wanted == value => return Some(true),
                HeaderTest::Pattern(Some(pattern)) if pattern.is_in(value) => return Some(true),
                // an error in the pattern ends it all: no cookie, no weight
                HeaderTest::Pattern(None) => return Some(false),
                HeaderTest::Words if word(value).is_some() => return word(value),
                _ => {}
            }
        }
        let cookie = self.cookie.as_ref()?;
        request.cookies.iter().find(|(name, _)| name == cookie).and_then(|(_, value)| word(value))
    }

    /// The share of the requests that nothing else decides about, 0 to 1.
    pub fn share(&self) -> f64 {
        (self.weight as f64 / self.total.max(1) as f64).clamp(0.0, 1.0)
    }

    /// A throw of the dice: `random(1..total) <= weight`.
    pub fn throw(&self, random: &mut Random) -> bool {
        self.weight > 0 && (random.below(self.total as u64) as i64) < self.weight
    }
}

/// Hands out `pods` in turn.
pub fn next_pod<'a>(pods: &'a [Arc<str>], cursor: &mut u32) -> Option<&'a Arc<str>> {
    let pod = pods.get(*cursor as usize % pods.len().max(1));
    *cursor = cursor.wrapping_add(1);
    pod
}
