-- Health of a ModelRollout for Argo CD. argocd-cm.yaml beside this file carries the same text.
--   Healthy      the target serves, and nothing is under way
--   Progressing  a rollout, a rollback or a buffer is under way; also while a stage is held, with the reason as message
--   Suspended    a person is asked for: an approval, or spec.paused
--   Degraded     the target was tried and traffic went back, or the object cannot work as it is
local health_of = {
  Stable = "Healthy",
  Preparing = "Progressing",
  Progressing = "Progressing",
  Holding = "Progressing",
  AwaitingApproval = "Suspended",
  Paused = "Suspended",
  Promoting = "Progressing",
  Buffering = "Progressing",
  RollingBack = "Progressing",
  Restoring = "Progressing",
  RolledBack = "Degraded",
  Invalid = "Degraded",
}

local hs = { status = "Progressing", message = "The operator has not seen this ModelRollout yet" }
local status = obj.status
if status == nil or status.phase == nil then
  return hs
end
if status.observedGeneration ~= obj.metadata.generation then
  hs.message = "The operator has not seen the last change of the spec yet"
  return hs
end

-- A phase that this file does not know is of a newer operator: never report it as healthy.
hs.status = health_of[status.phase] or "Progressing"
hs.message = status.phase
if status.summary ~= nil and status.summary.message ~= nil and status.summary.message ~= "" then
  hs.message = status.phase .. ": " .. status.summary.message
end
return hs
