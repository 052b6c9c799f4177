//! The API server, as far as preconditions go, and what a write does to what others believe.
//!
//! A write lands or it does not, as `src/shell/apply` and `src/shell/requests.rs` make it: the status is replaced at the
//! resourceVersion that was read; our own Ingresses are created if they are missing, replaced at uid and
//! resourceVersion, deleted by uid; a backend is switched by a JSON Patch with tests; replicas are set at the
//! Deployment's resourceVersion, after the production Ingress was read once more. Whatever fails ends the turn, and what
//! a conflict was about is read again.

use modelrollout::api::Color;

use super::rules::{self, Event};
use super::scope::{Broken, Known, Scope};
use super::state::{Anchor, Canary, Kind, Mode, Object, Operator, State, Turn, View, Write};

/// Why a write did not land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// A precondition failed; the operator reads this object again.
    Conflict(Object),
    /// Anything else: nothing is read again.
    Other,
}

impl State {
    /// The next write of the turn of `who` reaches the API server.
    pub fn land(&mut self, who: usize, scope: &Scope) {
        let Some(mut turn) = self.operators[who].turn.take() else { return };
        let Some(write) = turn.todo[0] else { return };
        let before = self.api;
        let plane = self.plane;
        match self.try_write(who, &mut turn, write, scope) {
            Ok(()) => {
                rules::landed(self, &before, plane, &turn, write, who);
                turn.begun = true;
                self.follow_traffic(scope);
            }
            Err(Refused::Other) if matches!(write, Write::Anchor { required: false, .. }) => {}
            Err(Refused::Conflict(object)) if matches!(write, Write::Anchor { required: false, .. }) => {
                self.read_again(who, object);
            }
            Err(refused) => {
                if let Refused::Conflict(object) = refused {
                    self.ghost.see(Event::LostConflict);
                    self.read_again(who, object);
                }
                self.end_turn(who);
                return;
            }
        }
        turn.todo.rotate_left(1);
        *turn.todo.last_mut().expect("not empty") = None;
        let operator = &mut self.operators[who];
        operator.turn = turn.todo[0].map(|_| turn);
        if let Mode::Late(left) = &mut operator.mode {
            *left -= 1;
            if *left == 0 {
                operator.turn = None;
            }
        }
        if operator.turn.is_none() {
            self.end_turn(who);
        }
    }

    /// Nothing more of its turn is done; a process that has lost its lease ends with it.
    pub fn end_turn(&mut self, who: usize) {
        self.operators[who].turn = None;
        if matches!(self.operators[who].mode, Mode::Late(_)) {
            self.restart(who);
        }
    }

    /// A new process: it remembers nothing, and reads everything.
    pub fn restart(&mut self, who: usize) {
        self.operators[who] = Operator::new(&self.api);
    }

    fn try_write(&mut self, who: usize, turn: &mut Turn, write: Write, scope: &Scope) -> Result<(), Refused> {
        let blind = scope.broken == Broken::RaisesIgnoreVersions;
        if self.is_excluded(who, turn, write, scope) {
            return Err(Refused::Other);
        }
        let changed = |object: Object| turn.changed[object.index()];
        match write {
            Write::Status | Write::AddFinalizer | Write::RemoveFinalizer | Write::RemoveAct => {
                let blind = write == Write::Status && scope.broken == Broken::StatusIgnoresVersions;
                if changed(Object::Rollout) && !blind {
                    return Err(Refused::Conflict(Object::Rollout));
                }
                let rollout = &mut self.api.rollout;
                match write {
                    Write::Status => rollout.status = turn.status,
                    Write::AddFinalizer => rollout.finalizer = true,
                    Write::RemoveFinalizer => rollout.finalizer = false,
                    _ => rollout.act = false,
                }
                self.touched(Object::Rollout, Some(who), scope);
                turn.changed[Object::Rollout.index()] = false;
            }
            Write::Canary { replaces, to, weight } => {
                self.put(turn, Object::Canary, replaces, blind)?;
                self.api.canary = Some(Canary { to, weight });
                self.touched(Object::Canary, Some(who), scope);
            }
            Write::Anchor { replaces, first, both, .. } => {
                self.put(turn, Object::Anchor, replaces, false)?;
                let created = self.api.anchor.map_or(0, |there| there.created);
                self.api.anchor = Some(Anchor { first, both, created });
                self.touched(Object::Anchor, Some(who), scope);
            }
            Write::DeleteCanary => self.delete(who, turn, Object::Canary, scope)?,
            Write::DeleteAnchor => self.delete(who, turn, Object::Anchor, scope)?,
            Write::Switch { to, guarded } => {
                if self.api.main == to || guarded && changed(Object::Main) && !blind {
                    return Err(Refused::Conflict(Object::Main));
                }
                self.api.main = to;
                self.api.main_by_us = Some(0);
                self.touched(Object::Main, Some(who), scope);
            }
            Write::Scale { color, replicas, checked } => {
                if checked && scope.broken != Broken::NoFreshRead {
                    self.read_again(who, Object::Main);
                    if self.api.main == color {
                        self.ghost.see(Event::StillServing);
                        return Err(Refused::Other);
                    }
                }
                if changed(Object::Deployment(color)) {
                    return Err(Refused::Other);
                }
                let deployment = self.api.deployments.get_mut(color);
                deployment.observed &= deployment.desired == replicas;
                deployment.desired = replicas;
                deployment.by_us = true;
                self.touched(Object::Deployment(color), Some(who), scope);
            }
        }
        Ok(())
    }

    /// Known faults of the product, by their names in [`Known`]: such a write does not land, so that others can be found.
    fn is_excluded(&self, who: usize, turn: &Turn, write: Write, scope: &Scope) -> bool {
        let late = matches!(self.operators[who].mode, Mode::Late(_));
        let over = self.ghost.attempt > turn.basis.attempt;
        let known = match write {
            Write::Status => Known::LateStatus,
            Write::Scale { .. } if over => Known::LateScale,
            _ => return false,
        };
        late && scope.leaves_out(known)
    }

    /// Creates or replaces an Ingress of ours.
    fn put(&self, turn: &Turn, object: Object, replaces: bool, blind: bool) -> Result<(), Refused> {
        let there = self.is_there(object);
        match (replaces, there) {
            (false, true) => Err(Refused::Conflict(object)),
            (true, false) => Err(Refused::Other),
            (true, true) if (turn.replaced[slot(object)] || turn.changed[object.index()]) && !blind => {
                Err(Refused::Conflict(object))
            }
            _ => Ok(()),
        }
    }

    /// Deletes an Ingress of ours by its uid; that it is gone is as good.
    fn delete(&mut self, who: usize, turn: &Turn, object: Object, scope: &Scope) -> Result<(), Refused> {
        if !self.is_there(object) {
            self.read_again(who, object);
            return Ok(());
        }
        if turn.replaced[slot(object)] {
            return Err(Refused::Other);
        }
        if object == Object::Canary {
            self.api.canary = None;
        } else {
            self.api.anchor = None;
        }
        for operator in &mut self.operators {
            operator.cache.replaced[slot(object)] = true;
            if let Some(turn) = &mut operator.turn {
                turn.replaced[slot(object)] = true;
            }
        }
        self.touched(object, Some(who), scope);
        Ok(())
    }

    fn is_there(&self, object: Object) -> bool {
        if object == Object::Canary { self.api.canary.is_some() } else { self.api.anchor.is_some() }
    }

    /// `object` has a new version. Its writer knows it; for others it is one more that they have not seen.
    pub fn touched(&mut self, object: Object, writer: Option<usize>, scope: &Scope) {
        for operator in &mut self.operators {
            if let Some(turn) = &mut operator.turn {
                turn.changed[object.index()] = true;
            }
            operator.cache.behind[object.index()] += 1;
        }
        for who in 0..self.operators.len() {
            if writer == Some(who) {
                self.read_again(who, object);
            }
            // who has yet to read everything anew may know it already: what it knew is never planned from
            let reads = matches!(self.operators[who].mode, Mode::Standby | Mode::Reads);
            let reads = reads && scope.broken != Broken::NoReadAtTakeover;
            if reads || self.operators[who].cache.behind[object.index()] > scope.lag {
                self.deliver(who, object.kind());
            }
        }
    }

    /// The operator learns the newest version of one object.
    fn read_again(&mut self, who: usize, object: Object) {
        let api = self.api;
        let cache = &mut self.operators[who].cache;
        cache.behind[object.index()] = 0;
        match object {
            Object::Rollout => cache.view.rollout = api.rollout,
            Object::Main => (cache.view.main, cache.view.main_by_us) = (api.main, api.main_by_us),
            Object::Canary => cache.view.canary = api.canary,
            Object::Anchor => cache.view.anchor = api.anchor,
            Object::Deployment(color) => *cache.view.deployments.get_mut(color) = *api.deployments.get(color),
        }
        if matches!(object, Object::Canary | Object::Anchor) {
            cache.replaced[slot(object)] = false;
        }
    }

    /// The watch of `kind` has caught up.
    pub fn deliver(&mut self, who: usize, kind: Kind) {
        kind.objects().iter().for_each(|object| self.read_again(who, *object));
    }

    /// The ingress controller has something to follow, or has nothing any more.
    fn follow_traffic(&mut self, scope: &Scope) {
        if (self.api.main, self.api.canary) == self.plane {
            self.plane_due = None;
        } else if self.plane_due.is_none() {
            self.plane_due = Some(scope.settle.as_secs() as i16);
        }
    }

    /// The ingress controller does what the objects say.
    pub fn plane_follows(&mut self) {
        self.plane = (self.api.main, self.api.canary);
        self.plane_due = None;
    }

    /// The controller of a Deployment has looked, and its Pods are what it wants.
    pub fn pods_follow(&mut self, color: Color, scope: &Scope) {
        let deployment = self.api.deployments.get_mut(color);
        deployment.observed = true;
        deployment.revision = deployment.template;
        deployment.ready = deployment.desired;
        *self.ghost.lost.get_mut(color) = 0;
        self.touched(Object::Deployment(color), None, scope);
    }
}

impl Operator {
    /// One that has just read everything.
    pub fn new(api: &View) -> Self {
        let cache = super::state::Cache { view: *api, behind: [0; 6], replaced: [false; 2] };
        Self { mode: Mode::Standby, cache, turn: None, fresh: false }
    }
}

fn slot(object: Object) -> usize {
    usize::from(object == Object::Anchor)
}
