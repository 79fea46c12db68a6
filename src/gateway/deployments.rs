//! Deployments that come into the model list and go out of it.
//!
//! Whoever starts and ends replicas keeps the list. A replica that is lost stays in it: the gateway
//! does not know, and its attempts there fail.

use super::Gateway;
use crate::config::gateway::Deployment;
use crate::units::{DeploymentId, ReplicaId, Time};

impl Gateway {
    /// A replica takes requests from now on: behind the deployments that name it, or, if none does,
    /// behind new ones like those of the first replica that has any.
    pub fn list(&mut self, replica: ReplicaId) {
        let deployments = &self.config.deployments;
        if !deployments.iter().any(|deployment| deployment.replica == replica) {
            let first = deployments.iter().map(|deployment| deployment.replica).min();
            let like: Vec<Deployment> = deployments
                .iter()
                .filter(|deployment| Some(deployment.replica) == first)
                .map(|deployment| Deployment { replica, ..deployment.clone() })
                .collect();
            self.config.deployments.extend(like);
            let all = self.config.deployments.len();
            for worker in &mut self.workers {
                worker.recent_fails.resize(all, (0, Time::ZERO));
            }
        }
        for (index, deployment) in self.config.deployments.iter().enumerate() {
            let list = &mut self.listed[deployment.group as usize];
            let id = DeploymentId::from_index(index);
            if deployment.replica == replica
                && let Err(place) = list.binary_search(&id)
            {
                list.insert(place, id);
            }
        }
    }

    /// A replica gets no new requests. Those that it has go on.
    pub fn unlist(&mut self, replica: ReplicaId) {
        let deployments = &self.config.deployments;
        for list in &mut self.listed {
            list.retain(|id| deployments[id.index()].replica != replica);
        }
    }
}
