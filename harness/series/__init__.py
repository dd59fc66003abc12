"""A series: run after run of one question, kept and gone on with. Campaigns, sweeps, planted faults."""
