{{/* What values.schema.json cannot say. All mistakes are told at once. */}}
{{- define "informerd.validate" -}}
{{- $mode := .Values.mode -}}
{{- $wrong := list -}}
{{- if and .Values.nodeAgent.allPods (ne $mode "node-agent") -}}
{{- $wrong = append $wrong (printf "nodeAgent.allPods is for mode node-agent; the mode is %s" $mode) -}}
{{- end -}}
{{- if and .Values.tier.certManager.enabled (ne $mode "tier") -}}
{{- $wrong = append $wrong (printf "tier.certManager.enabled is for mode tier; the mode is %s" $mode) -}}
{{- end -}}
{{- if and .Values.sidecar.dropIn (ne $mode "sidecar") -}}
{{- $wrong = append $wrong (printf "sidecar.dropIn is for mode sidecar; the mode is %s" $mode) -}}
{{- end -}}
{{- if and (eq .Values.snapshots.type "hostPath") (ne $mode "node-agent") -}}
{{- $wrong = append $wrong (printf "snapshots.type hostPath is for mode node-agent, whose pods have a node each; the mode is %s" $mode) -}}
{{- end -}}
{{- if and (eq $mode "injector") .Values.audiences -}}
{{- $wrong = append $wrong "audiences are for modes node-agent and tier: the apiserver has no token for the injector" -}}
{{- end -}}
{{- if and (eq $mode "sidecar") .Values.audiences -}}
{{- $wrong = append $wrong "audiences are for modes node-agent and tier: nobody authenticates to a sidecar" -}}
{{- end -}}
{{- if and (eq $mode "sidecar") (not .Values.sidecar.serviceAccountName) (or .Values.rbac.create .Values.flowControl.enabled) -}}
{{- $wrong = append $wrong "sidecar.serviceAccountName is required: the ServiceAccount of your pods, which gets the right to read what is cached" -}}
{{- end -}}
{{- if and .Values.rbac.create (not .Values.rbac.rules) (ne $mode "injector") -}}
{{- $config := include "informerd.config" . | fromYaml -}}
{{- if not $config.resources -}}
{{- $wrong = append $wrong "config.resources names nothing, so everything may be cached: say in rbac.rules what informerd may read" -}}
{{- end -}}
{{- range $config.resources -}}
{{- if and (not .exclude) (or (not .resource) (hasPrefix "*" (.resource | default ""))) -}}
{{- $wrong = append $wrong (printf "config.resources has a rule for %s: say in rbac.rules what informerd may read" (.resource | default "no resource" | quote)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $wrong -}}
{{- fail (printf "\n- %s\n" (join "\n- " .)) -}}
{{- end -}}
{{- end -}}
