{#- A model that rederive maintains: its table is there before dbt runs, and dbt only finds it. -#}
{% materialization rederive, adapter='spark' %}
  {%- set table = adapter.get_relation(database=none, schema=this.schema, identifier=this.identifier) -%}
  {% if table is none %}
    {{ exceptions.raise_compiler_error("rederive has not written " ~ this ~ ": run build.py, which refreshes it first") }}
  {% endif %}
  {% call statement('main') %}
    SELECT 1
  {% endcall %}
  {{ return({'relations': [table]}) }}
{% endmaterialization %}
