"""A faster window operator for windows that nothing reads before their end. It gives the results of WindowOperator."""
