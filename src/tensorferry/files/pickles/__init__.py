"""Read pickles with a machine that neither runs nor imports anything; and write pickles."""
