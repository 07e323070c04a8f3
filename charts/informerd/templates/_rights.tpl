{{/*
The rights to what `config.resources` caches, as {"cluster": rules, "namespaces": {name: rules}}. A rule with `namespaces` gets rights in these
namespaces alone. Each resource is named once.
*/}}
{{- define "informerd.rights" -}}
{{- $namespace := .Release.Namespace -}}
{{- $found := dict -}}
{{- $config := include "informerd.config" . | fromYaml -}}
{{- range $config.resources -}}
  {{- if not .exclude -}}
    {{- $parts := splitn "." 2 .resource -}}
    {{- $group := $parts._1 | default "core" -}}
    {{- range (.namespaces | default (list "")) -}}
      {{- $where := ternary $namespace . (eq . "$(POD_NAMESPACE)") -}}
      {{- $of := get $found $where | default (list) -}}
      {{- $found = set $found $where (append $of (dict "group" $group "resource" $parts._0) | uniq) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $rights := dict "cluster" list "namespaces" dict -}}
{{- range $where, $resources := $found -}}
  {{- $groups := list -}}
  {{- range $resources -}}{{- $groups = append $groups .group | uniq -}}{{- end -}}
  {{- $rules := list -}}
  {{- range $group := $groups -}}
    {{- $names := list -}}
    {{- range $resources -}}{{- if eq .group $group -}}{{- $names = append $names .resource -}}{{- end -}}{{- end -}}
    {{- $rules = append $rules (dict "apiGroups" (list (ternary "" $group (eq $group "core"))) "resources" $names "verbs" (list "get" "list" "watch")) -}}
  {{- end -}}
  {{- if $where -}}{{- $_ := set $rights.namespaces $where $rules -}}{{- else -}}{{- $_ := set $rights "cluster" $rules -}}{{- end -}}
{{- end -}}
{{- $all := get $found "" | default list -}}
{{- if and $config.snapshots (not (has (dict "group" "core" "resource" "namespaces") $all)) -}}
{{/* A snapshot is used only for the same cluster, which is known by the uid of kube-system. */}}
{{- $own := dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get") -}}
{{- $_ := set $rights "cluster" (append $rights.cluster $own) -}}
{{- end -}}
{{- if and .Values.rbac.rules (ne .Values.mode "injector") -}}{{- $rights = dict "cluster" .Values.rbac.rules "namespaces" dict -}}{{- end -}}
{{- toYaml $rights -}}
{{- end -}}
