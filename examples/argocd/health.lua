-- What Argo CD shows for a ModelBackend. Without it, Argo CD takes every object of a kind that it does not know for
-- Healthy. In ConfigMap argocd-cm: resource.customizations.health.modelbackend.dev_ModelBackend
local function condition(kind)
  for _, one in ipairs((obj.status or {}).conditions or {}) do
    if one.type == kind then
      return one
    end
  end
  return nil
end

if obj.metadata.deletionTimestamp ~= nil then
  local ready = condition("Ready")
  return {status = "Progressing", message = ready and ready.message or "is being deleted"}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not looked at this version yet"}
end

local stalled = condition("Stalled")
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.reason .. ": " .. stalled.message}
end
local reconciling = condition("Reconciling")
if reconciling ~= nil and reconciling.status == "True" then
  return {status = "Progressing", message = reconciling.reason .. ": " .. reconciling.message}
end
local ready = condition("Ready")
if ready == nil or ready.status ~= "True" then
  return {status = "Progressing", message = ready and ready.message or ""}
end
if ready.reason == "Suspended" or ready.reason == "NoInstances" then
  return {status = "Suspended", message = ready.message}
end
return {status = "Healthy", message = ready.message}
